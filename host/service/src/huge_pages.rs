//! Huge pages for the time of a run: taken at start, given back at the end, also after a signal.

use std::fs;

use crate::cleanup::{self, Registration};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
/// Bytes of one page.
const PAGE: usize = 2 << 20;

/// Huge pages beyond those that the machine had.
#[derive(Debug)]
pub struct HugePageLoan {
    pages: usize,
    _registration: Registration,
}

impl Drop for HugePageLoan {
    fn drop(&mut self) {
        give_back(self.pages);
    }
}

fn count() -> Option<usize> {
    fs::read_to_string(COUNT).ok()?.trim().parse().ok()
}

/// Lowers the machine's number by `pages`: others may have changed it meanwhile. Pages still in use
/// become surplus and go when they are unmapped. A failure leaves pages reserved that somebody can
/// give back by hand; there is nobody to tell.
fn give_back(pages: usize) {
    if let Some(now) = count() {
        let _ = fs::write(COUNT, now.saturating_sub(pages).to_string());
    }
}

/// Raises the machine's number of 2 MB pages by what `bytes` of memory need, and lowers it again
/// when the loan is dropped or the process is interrupted. `None` where the machine does not give
/// them: normal pages do, at a cost that is warned of where they are mapped.
pub fn borrow(bytes: usize) -> Option<HugePageLoan> {
    let pages = bytes.div_ceil(PAGE);
    let before = count()?;
    fs::write(COUNT, (before + pages).to_string()).ok()?;
    // Memory may be too fragmented for all of them.
    let got = count()?.saturating_sub(before).min(pages);
    let Ok(registration) = cleanup::register(move || give_back(got)) else {
        give_back(got);
        return None;
    };
    let loan = HugePageLoan { pages: got, _registration: registration };
    (got == pages).then_some(loan)
}
