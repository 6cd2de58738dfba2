//! Which records a line is about.

use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use regex::Regex;

use crate::line;
use crate::load::Reference;
use crate::needle::needles;
use crate::record::Record;

/// Whose messages stand inside those of others: dropped from a line that a more exact record knows.
const GENERAL: &str = "torvalds/linux";

/// What Moonrail's own lines in a log begin with; one that no record knows is worth telling.
const OWN: [&str; 2] = ["moonrail WARNING ", "moonrail ERROR "];

/// Finds the records of a line: fixed strings first, then the patterns of those whose string was found.
#[derive(Debug)]
pub struct Matcher {
    reference: &'static Reference,
    strings: AhoCorasick,
    /// For each string the records that it may mean; none for the marks of Moonrail's own lines.
    owners: Vec<Vec<usize>>,
    /// Compiled when first needed: most logs need few.
    patterns: Vec<OnceLock<Option<Regex>>>,
}

impl Matcher {
    /// The matcher of the built-in records, made once a process (some milliseconds).
    #[must_use]
    pub fn shared() -> &'static Matcher {
        static SHARED: LazyLock<Matcher> = LazyLock::new(|| Matcher::new(Reference::shared()));
        &SHARED
    }

    /// # Panics
    /// Where a record's pattern has no fixed string; a test keeps such a record out.
    fn new(reference: &'static Reference) -> Self {
        let mut strings: Vec<String> = OWN.map(str::to_owned).to_vec();
        let mut owners = vec![Vec::new(); strings.len()];
        for (index, record) in reference.records().iter().enumerate() {
            for needle in needles(&record.message_pattern).unwrap_or_default() {
                match strings.iter().position(|known| *known == needle) {
                    Some(known) => owners[known].push(index),
                    None => {
                        strings.push(needle);
                        owners.push(vec![index]);
                    }
                }
            }
        }
        let strings = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(strings)
            .expect("invariant: a few hundred short strings make a small automaton");
        let patterns = reference.records().iter().map(|_| OnceLock::new()).collect();
        Matcher { reference, strings, owners, patterns }
    }

    /// The records that `text`, a line or a message, is about; the most exact first. Empty for none.
    #[must_use]
    pub fn of_line(&self, text: &str) -> Vec<&'static Record> {
        let plain = line::without_colours(text.as_bytes());
        self.find(&plain).into_iter().map(|(index, _)| &self.reference.records()[index]).collect()
    }

    /// Indices of the records of `line`, and where in its cleaned text each begins.
    pub(crate) fn find(&self, line: &[u8]) -> Vec<(usize, usize)> {
        // Searched as it was written: a string may be escaped in the log and plain in the pattern.
        let text = line::text(line);
        let mut candidates: Vec<usize> = self
            .strings
            .find_overlapping_iter(text.as_bytes())
            .flat_map(|found| self.owners[found.pattern().as_usize()].iter().copied())
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let mut found: Vec<(usize, usize, usize)> = candidates
            .into_iter()
            .filter_map(|index| {
                let at = self.pattern(index)?.find(&text)?;
                Some((index, at.start(), at.len()))
            })
            .collect();
        if found.iter().any(|&(index, ..)| !self.is_general(index)) {
            found.retain(|&(index, ..)| !self.is_general(index));
        }
        // A record of one message says more than that of the code which the message carries.
        if found.iter().any(|&(index, ..)| self.is_one_message(index)) {
            found.retain(|&(index, ..)| self.record(index).code.is_none());
        }
        // The longer match knows the line better.
        found.sort_by_key(|&(_, _, length)| std::cmp::Reverse(length));
        found.into_iter().map(|(index, at, _)| (index, at)).collect()
    }

    /// The next place in `bytes`, from `from` on, where a record's string or a mark of Moonrail's own lines stands.
    pub(crate) fn next(&self, bytes: &[u8], from: usize) -> Option<std::ops::Range<usize>> {
        self.strings.find(Input::new(bytes).range(from..)).map(|found| found.range())
    }

    /// Whether `line` is one of Moonrail's own warnings.
    pub(crate) fn is_own(line: &[u8]) -> bool {
        OWN.iter().any(|mark| memchr::memmem::find(line, mark.as_bytes()).is_some())
    }

    pub(crate) fn record(&self, index: usize) -> &'static Record {
        &self.reference.records()[index]
    }

    fn is_one_message(&self, index: usize) -> bool {
        let record = self.record(index);
        record.code.is_none()
            && record.error_code.as_ref().is_some_and(|code| code.starts_with(char::is_uppercase))
    }

    fn is_general(&self, index: usize) -> bool {
        self.reference.records()[index].repo == GENERAL
    }

    fn pattern(&self, index: usize) -> Option<&Regex> {
        let compile = || Regex::new(&self.reference.records()[index].message_pattern).ok();
        self.patterns[index].get_or_init(compile).as_ref()
    }
}
