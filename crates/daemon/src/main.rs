//! `tailplaned`.
fn main() {}
