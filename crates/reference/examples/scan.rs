//! Scans a log and says how fast: `cargo run --release -p moonrail-reference --example scan -- FILE`.
#![allow(clippy::print_stdout)] // its output is its purpose

use std::fs::File;
use std::io;
use std::time::Instant;

fn main() -> io::Result<()> {
    for path in std::env::args().skip(1) {
        // The records are read once a process; a command pays for it too, so it is told apart, not left out.
        let begun = Instant::now();
        let matcher = moonrail_reference::Matcher::shared();
        let ready = begun.elapsed();
        let begun = Instant::now();
        let report = moonrail_reference::Scan::new(matcher).run(File::open(&path)?)?;
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{path}: {} bytes, {} lines, {} records, {:.0} MB/s, {:.1} ms to get ready",
            report.bytes,
            report.lines,
            report.found.len(),
            report.bytes as f64 / seconds / 1e6,
            ready.as_secs_f64() * 1e3
        );
    }
    Ok(())
}
