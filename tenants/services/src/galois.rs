//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d): [`Element`] is one number of it.

/// x^8 + x^4 + x^3 + x^2 + 1 without its x^8: what a product that leaves eight bits is reduced by.
pub(crate) const REDUCTION: u8 = 0x1d;
/// Elements other than zero, all of them powers of 2.
pub(crate) const ORDER: usize = 255;

/// Powers of 2, twice over so that a sum of two logarithms needs no reduction.
static EXP: [u8; 2 * ORDER] = {
    let mut table = [0; 2 * ORDER];
    let (mut i, mut power) = (0, 1u8);
    while i < table.len() {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
};

/// Logarithms to the base 2; that of zero has no meaning.
static LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// The product with 2, the element x.
const fn double(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 != 0 { REDUCTION } else { 0 }
}

/// One element of the field. Addition is exclusive or, and so is subtraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Element(pub u8);

impl Element {
    /// The neutral element of addition.
    pub const ZERO: Element = Element(0);
    /// The neutral element of multiplication.
    pub const ONE: Element = Element(1);

    /// 2 to the power of `exponent`.
    pub const fn power_of_two(exponent: usize) -> Element {
        Element(EXP[exponent % ORDER])
    }

    /// The sum.
    // An operator would hide that this is not the addition of bytes.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub const fn add(self, other: Element) -> Element {
        Element(self.0 ^ other.0)
    }

    /// The product.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub const fn mul(self, other: Element) -> Element {
        if self.0 == 0 || other.0 == 0 {
            return Element::ZERO;
        }
        Element(EXP[LOG[self.0 as usize] as usize + LOG[other.0 as usize] as usize])
    }

    /// The element whose product with this one is 1; `None` for zero.
    pub const fn inverse(self) -> Option<Element> {
        if self.0 == 0 {
            return None;
        }
        Some(Element(EXP[ORDER - LOG[self.0 as usize] as usize]))
    }
}

/// The products of one factor with all bytes, as two look-ups by half a byte each: `low[b & 15] ^ high[b >> 4]`. Each
/// table stands twice, once for each half of a 32-byte register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct Products {
    pub low: [u8; 32],
    pub high: [u8; 32],
}

impl Products {
    /// The table of `factor`.
    pub(crate) fn of(factor: Element) -> Products {
        Products {
            low: core::array::from_fn(|i| factor.mul(Element(i as u8 & 15)).0),
            high: core::array::from_fn(|i| factor.mul(Element((i as u8 & 15) << 4)).0),
        }
    }

    /// The products with 1, 2, 4 ... 128.
    pub(crate) fn of_powers(&self) -> [u8; 8] {
        core::array::from_fn(|bit| self.times(1 << bit))
    }

    /// The product with one byte.
    #[inline(always)]
    pub(crate) fn times(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as it is defined: of polynomials, reduced bit by bit.
    fn product_by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product & (1 << bit) != 0 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand products, none of them unsafe")]
    fn products_are_those_of_the_definition() {
        for a in 0..=255 {
            let table = Products::of(Element(a));
            for b in 0..=255 {
                let expected = product_by_definition(a, b);
                assert_eq!(Element(a).mul(Element(b)).0, expected, "{a} * {b}");
                assert_eq!(table.times(b), expected, "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_its_inverse() {
        assert_eq!(Element::ZERO.inverse(), None);
        for a in 1..=255 {
            let inverse = Element(a).inverse().expect("not zero");
            assert_eq!(Element(a).mul(inverse), Element::ONE, "{a}");
        }
    }

    #[test]
    fn two_generates_all_elements() {
        let mut seen = [false; 256];
        (0..ORDER).for_each(|i| seen[usize::from(Element::power_of_two(i).0)] = true);
        assert_eq!(seen.iter().filter(|&&seen| seen).count(), ORDER);
        assert_eq!(Element::power_of_two(ORDER), Element::ONE);
    }
}
