//! Huge pages for the time of a run: taken at start, given back at the end, also after a signal.

use std::fs;
use std::path::Path;

use crate::cleanup::{self, Registration};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
/// Bytes of one page.
const PAGE: usize = 2 << 20;

/// Huge pages beyond those that the machine had.
#[derive(Debug)]
pub struct HugePageLoan {
    old: usize,
    _registration: Registration,
}

/// Pages still in use become surplus and go when they are unmapped. A failure leaves pages reserved
/// that somebody can give back by hand; there is nobody to tell.
fn give_back(old: usize) {
    let _ = fs::write(COUNT, old.to_string());
}

impl Drop for HugePageLoan {
    fn drop(&mut self) {
        give_back(self.old);
    }
}

/// Raises the machine's number of 2 MB pages by what `bytes` of memory need, and puts the old
/// number back when the loan is dropped or the process is interrupted. `None` where the machine
/// does not give them: normal pages do, at a cost that is warned of where they are mapped.
pub fn borrow(bytes: usize) -> Option<HugePageLoan> {
    let path = Path::new(COUNT);
    let old: usize = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let wanted = old + bytes.div_ceil(PAGE);
    let registration = cleanup::register(move || give_back(old)).ok()?;
    let loan = HugePageLoan { old, _registration: registration };
    fs::write(path, wanted.to_string()).ok()?;
    let got: usize = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    // Memory may be too fragmented for all of them: dropping the loan gives back what there is.
    (got >= wanted).then_some(loan)
}
