//! Placeholder until the broker lands.
#![allow(dead_code, unused_imports)]
mod cli;
mod cluster;
mod config;
fn main() {}
