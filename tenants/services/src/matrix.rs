//! Square matrices over GF(2^8), as far as erasure codes need them: `invert(&mut matrix, n)`.

use crate::galois::Element;

/// Inverts the `n` by `n` matrix in place of `inverse`, by Gauss and Jordan; `None` where it is singular. Row by row.
/// `matrix` is used up.
pub(crate) fn invert(matrix: &mut [Element], n: usize) -> Option<Vec<Element>> {
    assert_eq!(matrix.len(), n * n, "a square matrix");
    let mut inverse = vec![Element::ZERO; n * n];
    (0..n).for_each(|i| inverse[i * n + i] = Element::ONE);
    for column in 0..n {
        let pivot = (column..n).find(|row| matrix[row * n + column] != Element::ZERO)?;
        for i in 0..n {
            matrix.swap(pivot * n + i, column * n + i);
            inverse.swap(pivot * n + i, column * n + i);
        }
        let scale = matrix[column * n + column].inverse()?;
        for side in [&mut *matrix, &mut inverse] {
            let row = &mut side[column * n..(column + 1) * n];
            row.iter_mut().for_each(|element| *element = element.mul(scale));
        }
        for row in (0..n).filter(|&row| row != column) {
            let factor = matrix[row * n + column];
            if factor == Element::ZERO {
                continue;
            }
            for side in [&mut *matrix, &mut inverse] {
                for i in 0..n {
                    let term = factor.mul(side[column * n + i]);
                    side[row * n + i] = side[row * n + i].add(term);
                }
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        let n = 5;
        // A zero at the first place, so that rows must change places.
        let entry = |i: usize| Element(if i == 0 { 0 } else { (i * i + 3 * i + 7) as u8 });
        let matrix: Vec<_> = (0..n * n).map(entry).collect();
        let inverse = invert(&mut matrix.clone(), n).expect("regular");
        for (row, column) in (0..n * n).map(|at| (at / n, at % n)) {
            let term = |i: usize| matrix[row * n + i].mul(inverse[i * n + column]);
            let sum = (0..n).map(term).fold(Element::ZERO, Element::add);
            assert_eq!(sum, Element(u8::from(row == column)), "{row} {column}");
        }
    }

    #[test]
    fn a_singular_matrix_has_no_inverse() {
        let matrix = [1, 2, 3, 2, 4, 6, 7, 8, 9].map(Element);
        assert_eq!(invert(&mut matrix.clone(), 3), None);
    }
}
