//! Placeholder until the crate's first slice lands.
