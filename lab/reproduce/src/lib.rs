//! The frame of `tailplane reproduce`: what a figure is, what a result is, and how results are
//! shown (DESIGN: commands). It knows nothing of networks: the code that measures is the caller's.
//!
//! - [`claims`]: what the papers claim, and our goals; [`figure`]: a figure and the list of them.
//! - [`record`]: what a figure writes to while it runs; [`measured`]: one value with its spread, or
//!   the reason why there is none. How windows are measured is the crate `measure`'s.
//! - [`result`]: the JSON; [`render`]: text, Markdown and page, of tables ([`grid`]) and plots ([`plot`]).
//! - [`progress`]: what is being measured, and how long it still takes.

mod axis;
pub mod claims;
pub mod figure;
pub mod grid;
mod label;
#[cfg(test)]
mod markup_tests;
pub mod measured;
pub mod number;
pub mod plot;
pub mod progress;
pub mod record;
pub mod render;
pub mod result;
#[cfg(test)]
mod shown_tests;
mod xml;

pub use claims::{Claim, Claims, Mode};
pub use figure::{Figure, Setup, Takes, UnknownFigure, find, not_run, select};
pub use grid::Grid;
pub use measured::Measured;
pub use progress::{Bar, Progress, Silent};
pub use record::{ChartId, Options, Recorder, SeriesId, Stopped};
pub use result::{Axis, Chart, FigureResult, Mark, MarkOf, Report, Role, Scale, Series};
