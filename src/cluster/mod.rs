//! wip
mod claim;
mod ids;
mod names;
mod owner_file;
mod state_file;
mod stop;
