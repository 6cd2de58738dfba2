//! What somebody who is woken up wants to know first: what is wrong, where, and what mends it.

use std::collections::BTreeMap;

use moonrail_compat::Severity;
use moonrail_reference::Reference;
use serde::Serialize;

use super::cluster::{FailureView, SegmentView, State};
use super::pairs::Matrix;
use super::text::{counted, span};
use super::watch::WINDOW;

/// Segments that a problem names.
const NAMES: usize = 8;
/// An engine that has registered its address publishes its descriptor at once.
const PATIENCE: u64 = 10;

/// One thing that is wrong.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    pub(super) level: Level,
    pub(super) what: String,
    pub(super) fix: String,
    /// A page of the error reference, relative to the server's root.
    pub(super) record: Option<String>,
    /// Whom it concerns: names of segments, or of kinds of engines by their letters. The first ones.
    pub(super) concerns: Vec<String>,
    /// Those left out.
    pub(super) more: usize,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It does not work, or does not tell the truth.
    Problem,
    /// It will hurt some day.
    Warning,
}

/// All of them, the worst first. `failures`: the newest first.
pub(super) fn find(segments: &[SegmentView], failures: &[FailureView], matrix: &Matrix) -> Vec<Problem> {
    let mut problems = failing(failures);
    problems.extend(silent(segments));
    problems.extend(without_descriptor(segments));
    problems.extend(pairs(matrix));
    problems.extend(fallbacks(segments));
    problems.sort_by_key(|problem| problem.level);
    problems
}

/// One problem for each code that was seen in the last minutes.
fn failing(failures: &[FailureView]) -> Vec<Problem> {
    let mut by_code: Vec<(&FailureView, usize, BTreeMap<String, usize>)> = Vec::new();
    for failure in failures.iter().filter(|failure| failure.seconds_ago <= WINDOW.as_secs()) {
        let at = by_code.iter().position(|(first, ..)| first.code == failure.code).unwrap_or_else(|| {
            by_code.push((failure, 0, BTreeMap::new()));
            by_code.len() - 1
        });
        let between = match &failure.peer {
            Some(peer) => format!("{} → {peer}", failure.engine),
            None => failure.engine.clone(),
        };
        by_code[at].1 += 1;
        *by_code[at].2.entry(between).or_default() += 1;
    }
    let tell = |(latest, count, between): (&FailureView, usize, BTreeMap<String, usize>)| {
        let record = Reference::shared().by_key(&latest.code);
        let cause = record.map(|record| format!(": {}", record.cause)).unwrap_or_default();
        let mut between: Vec<(String, usize)> = between.into_iter().collect();
        between.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let more = between.len().saturating_sub(NAMES);
        Problem {
            level: Level::Problem,
            what: format!(
                "{} failed with {} in the last {}, the latest {} ago{cause}",
                counted(count, "transfer"),
                latest.code,
                span(WINDOW.as_secs()),
                span(latest.seconds_ago)
            ),
            fix: record.map_or_else(
                || "no record explains this code: look at the messages below".to_owned(),
                |record| record.fix.clone(),
            ),
            record: latest.record.clone(),
            concerns: between
                .into_iter()
                .take(NAMES)
                .map(|(pair, count)| format!("{pair} ({count})"))
                .collect(),
            more,
        }
    };
    by_code.into_iter().map(tell).collect()
}

/// Engines that announce figures and do not answer: mostly because their process is gone.
fn silent(segments: &[SegmentView]) -> Option<Problem> {
    let tell = |segment: &SegmentView| {
        let why = segment.figures.missing.as_deref().unwrap_or_default();
        Some(format!("{} ({why})", segment.name)).filter(|_| segment.figures.silent)
    };
    let names: Vec<String> = segments.iter().filter_map(tell).collect();
    let say = |count: &str| {
        (
            format!("no answer from {count} that announced figures: stopped, gone, or not reached from here"),
            "see whether the process lives; started again, an engine takes its name back, and the entries of one that will not \
             come back are removed with DELETE /metadata?key=…",
        )
    };
    about(names, say, Level::Problem)
}

fn without_descriptor(segments: &[SegmentView]) -> Vec<Problem> {
    let of = |state: State, patience: u64| -> Vec<String> {
        let those = segments.iter().filter(|segment| segment.state == state);
        those.filter(|segment| segment.seconds_since_announced >= patience).map(|s| s.name.clone()).collect()
    };
    let missing = |count: &str| {
        (
            format!("no descriptor of {count} that registered an address: nobody can transfer there"),
            "restart the engine; a key that nobody owns any more is removed with DELETE /metadata?key=…",
        )
    };
    let unreadable = |count: &str| {
        (
            format!("the descriptor of {count} cannot be read: peers refuse it"),
            "look at the release and at what else writes to this server; the table of segments says what is wrong with it",
        )
    };
    let missing = about(of(State::NoDescriptor, PATIENCE), missing, Level::Warning);
    let unreadable = about(of(State::Unreadable, 0), unreadable, Level::Problem);
    missing.into_iter().chain(unreadable).collect()
}

/// What does not work between kinds of engines, or works until something goes wrong.
fn pairs(matrix: &Matrix) -> impl Iterator<Item = Problem> + '_ {
    let serious = matrix.doubts.iter().filter(|view| view.doubt.severity() > Severity::Note);
    serious.map(|view| Problem {
        level: if view.doubt == moonrail_compat::Problem::ProbeSaysDead {
            Level::Warning
        } else {
            Level::Problem
        },
        what: format!(
            "{} of engines, {}: {}",
            counted(view.pairs, "pair"),
            view.doubt.as_str(),
            view.doubt.what()
        ),
        fix: view.doubt.fix().to_owned(),
        record: None,
        concerns: view.between.iter().take(NAMES).cloned().collect(),
        more: view.between.len().saturating_sub(NAMES),
    })
}

/// Engines that do something else than they were asked for.
fn fallbacks(segments: &[SegmentView]) -> Vec<Problem> {
    let mut by_text: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for segment in segments {
        for text in &segment.figures.fallbacks {
            by_text.entry(text).or_default().push(segment.name.clone());
        }
    }
    let tell = |(text, names): (&str, Vec<String>)| {
        about(
            names,
            |count| {
                (
                    format!("{count} not doing what was asked for: {text}"),
                    "ask for what is there, or set MOONRAIL_STRICT=1, with which an engine fails instead",
                )
            },
            Level::Warning,
        )
    };
    by_text.into_iter().filter_map(tell).collect()
}

fn about(names: Vec<String>, say: impl Fn(&str) -> (String, &'static str), level: Level) -> Option<Problem> {
    if names.is_empty() {
        return None;
    }
    let (what, fix) = say(&counted(names.len(), "engine"));
    let more = names.len().saturating_sub(NAMES);
    let concerns = names.into_iter().take(NAMES).collect();
    Some(Problem { level, what, fix: fix.to_owned(), record: None, concerns, more })
}
