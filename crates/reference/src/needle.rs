//! Text that must stand in a line for a pattern to match: what a log is searched for first.
//!
//! A log of gigabytes is mostly lines that no record is about. Looking for a few hundred fixed strings costs about a
//! cycle a byte; the patterns themselves only see the lines in which one of theirs was found.

use regex_syntax::hir::{Hir, HirKind};

/// Shorter text stands in too many lines.
const SHORTEST: usize = 5;

/// Characters that logs in JSON write in another way, so they never stand in a needle.
const REWRITTEN: &[u8] = b"\"\\<>&'\n\r\t";

/// Strings of which at least one stands in every text that `pattern` matches; `None` if there are none to be had.
pub(crate) fn needles(pattern: &str) -> Option<Vec<String>> {
    let hir = regex_syntax::Parser::new().parse(pattern).ok()?;
    let found = required(&hir)?;
    (found.iter().all(|needle| needle.len() >= SHORTEST)).then_some(found)
}

fn required(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Literal(literal) => longest_piece(&literal.0).map(|piece| vec![piece]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(required).max_by_key(|needles| worth(needles)),
        HirKind::Alternation(ways) => {
            let mut all = Vec::new();
            for way in ways {
                all.extend(required(way)?);
            }
            all.dedup();
            Some(all)
        }
        _ => None,
    }
}

/// A set is as good as its shortest member; of equals, the smaller set.
fn worth(needles: &[String]) -> (usize, isize) {
    let shortest = needles.iter().map(String::len).min().unwrap_or(0);
    (shortest, -isize::try_from(needles.len()).unwrap_or(isize::MAX))
}

fn longest_piece(literal: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(literal).ok()?;
    let pieces = text.split(|c: char| !c.is_ascii() || REWRITTEN.contains(&(c as u8)));
    pieces.max_by_key(|piece| piece.len()).filter(|piece| !piece.trim().is_empty()).map(str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_text_that_must_be_there_is_taken() {
        assert_eq!(
            needles(r"ret=-?\d+ batch memory registration failed").unwrap(),
            [" batch memory registration failed"]
        );
        assert_eq!(
            needles(r"Retry Exhausted|retries exceeded").unwrap(),
            ["Retry Exhausted", "retries exceeded"]
        );
        assert_eq!(needles(r"requires >= 0\.3\.4 of the engine").unwrap(), ["= 0.3.4 of the engine"]);
    }

    #[test]
    fn patterns_without_such_text_have_none() {
        assert_eq!(needles(r"\d+ \w+"), None);
        assert_eq!(needles("abc|abcdefgh"), None);
        assert_eq!(needles("(optional text)?x"), None);
    }
}
