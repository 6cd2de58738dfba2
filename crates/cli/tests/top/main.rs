//! `moonrail top`: as a program, and on a real terminal.

#![allow(clippy::unwrap_used)]

mod engines;
mod live;
mod once;
mod reporter;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
