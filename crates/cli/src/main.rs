//! The `tailplane` command.
fn main() {}
