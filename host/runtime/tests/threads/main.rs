//! Dataplanes on real threads, joined by rings in memory. One binary: most of building it is the dataplane's own code.

mod burst;
mod common;
mod controls;
mod leaving;
mod moving;
mod moving_processes;
mod process;
mod runtime;
mod waiting;
