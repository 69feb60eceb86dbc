//! The papers' figures, measured on this machine: one small file each.
//!
//! To add one: write its file with a `Figure` constant (what is run, which claims it fills, and the
//! function that runs it), and name it in [`FIGURES`]. What a figure needs of the machine it takes
//! from the [`Testbed`].

mod batching;
mod connections;
mod cores;
mod curve;
mod echo;
pub mod elastic;
mod generator;
mod goodput;
mod hyperplane;
mod ixcp;
mod lines;
mod local;
mod memcached;
pub mod moving;
mod netpipe;
pub mod protection;
mod scaling;
pub(crate) mod testbed;
pub(crate) mod zygos;

use reproduce::Figure;

pub use testbed::Testbed;

use crate::demo::figure::DEMO;
use crate::pareto::draw;

/// All figures, in the papers' order.
pub const FIGURES: &[Figure<Testbed>] = &[
    netpipe::FIG4,
    cores::FIG5A,
    echo::FIG5B,
    echo::FIG5C,
    connections::FIG6,
    memcached::FIG7,
    memcached::TABLE3,
    ixcp::FIG8,
    ixcp::FIG9,
    draw::MEASURED,
    ixcp::FIG10,
    ixcp::FIG11,
    ixcp::FIG12,
    ixcp::TABLE4,
    ixcp::GOVERNED,
    ixcp::TABLE5,
    elastic::ELASTIC,
    batching::FIG13,
    protection::PROTECTION,
    zygos::FIG2,
    zygos::FIG3,
    zygos::FIG6,
    zygos::FIG7,
    zygos::FIG8,
    zygos::FIG9,
    zygos::FIG11,
    zygos::CROSSING,
    zygos::PREEMPTION,
    zygos::IMBALANCE,
    zygos::VALIDATE,
    generator::GENERATOR,
    goodput::GOODPUT,
    goodput::FAIRNESS,
    hyperplane::FIG3,
    hyperplane::SOFTWARE,
    DEMO,
];

#[cfg(test)]
mod tests {
    use reproduce::{Claims, figure};

    use super::*;

    #[test]
    fn the_figures_and_their_claims_fit() {
        let claims = Claims::builtin().expect("claims.toml is right");
        assert_eq!(figure::faults(FIGURES, &claims), Vec::<String>::new());
    }
}
