//! What a tunnel does with the traffic class: ECN by RFC 6040, the differentiated services codepoint by RFC 2983.
//!
//! In: `outer = encapsulate(inner_class, model)`. Out: `inner = decapsulate(inner_class, outer_class, model)?`.

use wire::ipv4::{ECN_CE, ECN_ECT_0, ECN_ECT_1, ECN_NOT_ECT};

use crate::refused::Refused;

/// The lower two bits of the traffic class.
const ECN: u8 = 0b11;

/// How a tunnel treats the differentiated services codepoint (RFC 2983 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DscpModel {
    /// The codepoint is copied outwards at the entry and inwards at the exit: the tunnel is as if it were not there.
    Uniform,
    /// All packets travel under this codepoint (six bits), and the inner one is left as it is.
    Pipe(u8),
}

/// The outer traffic class. ECN is copied, "normal mode" (RFC 6040 §4.1).
#[inline]
pub(crate) fn encapsulate(inner: u8, model: DscpModel) -> u8 {
    match model {
        DscpModel::Uniform => inner,
        DscpModel::Pipe(codepoint) => codepoint << 2 | inner & ECN,
    }
}

/// The traffic class with which the inner packet goes on: RFC 6040 §4.2, Figure 4.
///
/// # Errors
/// `Congestion` for a packet of a sender without ECN that met congestion on the way.
#[inline]
pub(crate) fn decapsulate(inner: u8, outer: u8, model: DscpModel) -> Result<u8, Refused> {
    let ecn = match (inner & ECN, outer & ECN) {
        (ECN_NOT_ECT, ECN_CE) => return Err(Refused::Congestion),
        (ECN_NOT_ECT, _) => ECN_NOT_ECT,
        (_, ECN_CE) | (ECN_CE, _) => ECN_CE,
        (ECN_ECT_0, ECN_ECT_1) => ECN_ECT_1,
        (inner, _) => inner,
    };
    let dscp = match model {
        DscpModel::Uniform => outer & !ECN,
        DscpModel::Pipe(_) => inner & !ECN,
    };
    Ok(dscp | ecn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_rfc_6040_line_by_line() {
        let (not, ect0, ect1, ce) = (ECN_NOT_ECT, ECN_ECT_0, ECN_ECT_1, ECN_CE);
        // Rows by the inner field; columns by the outer: Not-ECT, ECT(0), ECT(1), CE.
        let table = [
            (not, [Some(not), Some(not), Some(not), None]),
            (ect0, [Some(ect0), Some(ect0), Some(ect1), Some(ce)]),
            (ect1, [Some(ect1), Some(ect1), Some(ect1), Some(ce)]),
            (ce, [Some(ce), Some(ce), Some(ce), Some(ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [not, ect0, ect1, ce].into_iter().zip(row) {
                let pipe = decapsulate(0xb8 | inner, 0x28 | outer, DscpModel::Pipe(10));
                assert_eq!(pipe.ok(), expected.map(|ecn| 0xb8 | ecn), "{inner:02b} {outer:02b}");
                let uniform = decapsulate(0xb8 | inner, 0x28 | outer, DscpModel::Uniform);
                assert_eq!(uniform.ok(), expected.map(|ecn| 0x28 | ecn), "{inner:02b} {outer:02b}");
            }
        }
        for ecn in [not, ect0, ect1, ce] {
            assert_eq!(encapsulate(0xb8 | ecn, DscpModel::Uniform), 0xb8 | ecn);
            assert_eq!(encapsulate(0xb8 | ecn, DscpModel::Pipe(10)), 0x28 | ecn);
        }
    }
}
