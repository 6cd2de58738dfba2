//! Known messages in a log of any size: read as a stream, in bounded memory.

use std::collections::HashMap;
use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memmem, memrchr};

use crate::line;
use crate::matcher::Matcher;
use crate::record::{Record, Severity};

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;
/// Of a line longer than a block, what is looked at again with the next one.
const CARRY: usize = 4 << 10;
/// How much of a long line a pattern gets to see, before and behind what was found.
const BEFORE: usize = 4 << 10;
const BEHIND: usize = 12 << 10;
/// How far back a traceback's frames are looked for.
const FRAMES: usize = 16 << 10;
/// Characters of a line that are kept.
const EXCERPT: usize = 400;
/// Lines of Moonrail that no record knows, kept as examples.
const EXAMPLES: usize = 20;

/// A record's lines in a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found {
    /// The record.
    pub record: &'static Record,
    /// Lines that it was found in.
    pub count: u64,
    /// The first of them, counted from 1.
    pub first_line: u64,
    /// The last of them.
    pub last_line: u64,
    /// The first of them as it reads, cut where it is long.
    pub excerpt: String,
    /// The innermost frame of the traceback above the first of them: `File "…", line N, in NAME`.
    pub frame: Option<String>,
}

/// What a log holds.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// Bytes read.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// What was found, in the order in which each came first.
    pub found: Vec<Found>,
    /// Warnings of Moonrail itself that no record knows: how many, and the first of them.
    pub unknown: u64,
    /// Examples of them.
    pub unknown_lines: Vec<String>,
}

impl Report {
    /// What came first and is not merely the consequence of something else.
    #[must_use]
    pub fn first_cause(&self) -> Option<&Found> {
        let by = |least: Severity, symptoms: bool| {
            self.found
                .iter()
                .find(|found| found.record.severity >= least && (symptoms || !found.record.symptom))
        };
        by(Severity::Error, false)
            .or_else(|| by(Severity::Warning, false))
            .or_else(|| by(Severity::Error, true))
            .or_else(|| by(Severity::Info, true))
    }
}

/// Reads `log` to its end.
///
/// # Errors
/// Reading failed.
pub fn scan(log: impl Read) -> io::Result<Report> {
    Scan::new(Matcher::shared()).run(log)
}

/// A scan under way.
#[derive(Debug)]
pub struct Scan {
    matcher: &'static Matcher,
    report: Report,
    /// Record to its place in the report.
    places: HashMap<usize, usize>,
}

impl Scan {
    /// A scan that has read nothing.
    #[must_use]
    pub fn new(matcher: &'static Matcher) -> Scan {
        Scan { matcher, report: Report::default(), places: HashMap::new() }
    }

    /// Reads `log` to its end.
    ///
    /// # Errors
    /// Reading failed.
    pub fn run(mut self, mut log: impl Read) -> io::Result<Report> {
        let mut buffer = vec![0; BLOCK];
        let mut filled = 0;
        loop {
            let got = match log.read(&mut buffer[filled..]) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.report.bytes += got as u64;
            filled += got;
            if got == 0 {
                self.block(&buffer[..filled], filled);
                self.report.lines += u64::from(filled > 0);
                return Ok(self.report);
            }
            let kept = match memrchr(b'\n', &buffer[..filled]) {
                Some(newline) => {
                    self.block(&buffer[..=newline], newline + 1);
                    newline + 1
                }
                // One line that fills the buffer: what begins in its last bytes is found with the next piece.
                None if filled == buffer.len() => {
                    let done = filled - CARRY;
                    self.block(&buffer[..filled], done);
                    done
                }
                None => 0,
            };
            buffer.copy_within(kept..filled, 0);
            filled -= kept;
        }
    }

    /// Looks through whole lines, at what begins before `until`.
    fn block(&mut self, bytes: &[u8], until: usize) {
        let plain = line::without_colours(bytes);
        // Colours in one line longer than the buffer: the border moves with what was taken out before it.
        let until = if plain.len() == bytes.len() { until } else { until.min(plain.len()) };
        let (mut at, mut counted) = (0, 0);
        while let Some(found) = self.matcher.next(&plain, at) {
            if found.start >= until {
                break;
            }
            let start = memrchr(b'\n', &plain[..found.start]).map_or(0, |newline| newline + 1);
            let end = memchr(b'\n', &plain[found.end..]).map_or(plain.len(), |newline| found.end + newline);
            self.report.lines += newlines(&plain[counted..start]);
            counted = start;
            let window = start.max(found.start.saturating_sub(BEFORE))..end.min(found.end + BEHIND);
            self.line(&plain, window.clone());
            at = window.end.max(found.end);
        }
        self.report.lines += newlines(&plain[counted..until.min(plain.len())]);
    }

    fn line(&mut self, block: &[u8], at: std::ops::Range<usize>) {
        let line = &block[at.clone()];
        let number = self.report.lines + 1;
        let found = self.matcher.find(line);
        if found.is_empty() && Matcher::is_own(line) {
            self.report.unknown += 1;
            if self.report.unknown_lines.len() < EXAMPLES {
                self.report.unknown_lines.push(excerpt(line, 0));
            }
        }
        for (index, place) in found {
            if let Some(&known) = self.places.get(&index) {
                let known = &mut self.report.found[known];
                // A line that is looked at in pieces is one line.
                known.count += u64::from(known.last_line != number);
                known.last_line = number;
                continue;
            }
            self.places.insert(index, self.report.found.len());
            self.report.found.push(Found {
                record: self.matcher.record(index),
                count: 1,
                first_line: number,
                last_line: number,
                excerpt: excerpt(line, place),
                frame: frame(&block[at.start.saturating_sub(FRAMES)..at.start]),
            });
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// The line, or what of it begins a little before `place` where it is long.
fn excerpt(line: &[u8], place: usize) -> String {
    let text = line::text(line);
    let text = text.trim_end();
    if text.chars().count() <= EXCERPT {
        return printable(text);
    }
    let before = text.get(..place).map_or(0, |before| before.chars().count().saturating_sub(EXCERPT / 4));
    let cut: String = text.chars().skip(before).take(EXCERPT).collect();
    let (left, right) =
        (if before > 0 { "…" } else { "" }, if before + EXCERPT < text.chars().count() { "…" } else { "" });
    format!("{left}{}{right}", printable(&cut))
}

/// A log is somebody else's text: nothing of it may steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The last frame in the lines above, if they end in a traceback.
fn frame(above: &[u8]) -> Option<String> {
    let at = memmem::rfind(above, b"File \"")?;
    let line = &above[at..];
    let end = memchr(b'\n', line)?;
    // Below a frame stand its source line and a line of marks at most.
    let (frame, below) = line.split_at(end);
    if newlines(below) > 3 || memmem::find(frame, b", line ").is_none() {
        return None;
    }
    Some(excerpt(frame, 0))
}
