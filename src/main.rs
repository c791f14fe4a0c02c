//! Placeholder until the broker lands.
fn main() {}
