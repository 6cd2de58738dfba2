//! The request trace: one JSON object a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;

/// Where the repository keeps it.
const DEFAULT: &str = "data/conversation_trace.jsonl";
static COMPILED_IN: &str = include_str!("../../../../data/conversation_trace.jsonl");

/// One request, as far as its prompt's KV cache goes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Request {
    /// Tokens of the prompt.
    pub(super) input_length: u64,
    /// One id for each 512-token block of the prompt; equal ids are equal KV.
    pub(super) hash_ids: Vec<u64>,
}

/// The first requests of a trace.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) requests: Vec<Request>,
    /// Where they come from, for people.
    pub(super) source: String,
}

/// The first `count` requests of `file`, of the default file, or of the copy compiled in.
pub(super) fn load(file: Option<&Path>, count: usize) -> Result<Slice, Failure> {
    let default = PathBuf::from(DEFAULT);
    let (source, requests) = match file {
        Some(file) => (file.display().to_string(), open(file, count)?),
        None if default.is_file() => (DEFAULT.to_owned(), open(&default, count)?),
        None => {
            let source = "the built-in conversation trace".to_owned();
            let requests = parse(COMPILED_IN.as_bytes(), count).map_err(|error| failure(&source, &error))?;
            (source, requests)
        }
    };
    if requests.is_empty() {
        return Err(Failure::failed(format!("{source} holds no request")).fix("give another --trace"));
    }
    Ok(Slice { requests, source })
}

fn open(file: &Path, count: usize) -> Result<Vec<Request>, Failure> {
    let source = file.display().to_string();
    let opened = File::open(file).map_err(|error| {
        Failure::failed(format!("cannot open the trace {source}: {error}"))
            .fix("give another --trace, or none")
    })?;
    parse(BufReader::new(opened), count).map_err(|error| failure(&source, &error))
}

/// What is wrong with a trace, and in which line.
#[derive(Debug, PartialEq, Eq)]
struct BadLine {
    /// Counted from 1.
    line: usize,
    what: String,
}

fn failure(source: &str, bad: &BadLine) -> Failure {
    Failure::failed(format!("{source} line {}: {}", bad.line, bad.what))
        .fix("a line is a JSON object with input_length and hash_ids, as in data/README.md")
}

fn parse(input: impl BufRead, count: usize) -> Result<Vec<Request>, BadLine> {
    let mut requests = Vec::new();
    for (index, line) in input.lines().enumerate() {
        if requests.len() == count {
            break;
        }
        let bad = |what: String| BadLine { line: index + 1, what };
        let line = line.map_err(|error: io::Error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        // The line's number is ours; serde's would always be 1.
        let request: Request = serde_json::from_str(&line)
            .map_err(|error| bad(error.to_string().replace(" at line 1", " at")))?;
        if request.hash_ids.is_empty() {
            return Err(bad("hash_ids is empty".to_owned()));
        }
        requests.push(request);
    }
    Ok(requests)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [0, 46]}"#;

    #[test]
    fn the_compiled_in_trace_is_whole() {
        let requests = parse(COMPILED_IN.as_bytes(), usize::MAX).unwrap();
        assert_eq!(requests.len(), 1168);
        assert!(
            requests
                .iter()
                .all(|request| request.hash_ids.len() as u64 == request.input_length.div_ceil(512))
        );
    }

    #[test]
    fn only_as_much_as_asked_for_is_read() {
        let text = format!("{GOOD}\n\n{GOOD}\nnot JSON\n");
        let two = parse(text.as_bytes(), 2).unwrap();
        assert_eq!(two, vec![Request { input_length: 700, hash_ids: vec![0, 46] }; 2]);
    }

    #[test]
    fn a_bad_line_is_named_by_number() {
        for bad in [
            "not JSON",
            "{}",
            "[1]",
            r#"{"input_length": -1, "hash_ids": [1]}"#,
            "{\"input_length\": 1, \"hash_ids\": []}",
        ] {
            let error = parse(format!("{GOOD}\n\n{bad}\n").as_bytes(), usize::MAX).unwrap_err();
            assert_eq!(error.line, 3, "{bad}");
            assert!(!error.what.contains("line"), "{}", error.what);
        }
        let error = parse(&b"\xff\xfe\n"[..], 1).unwrap_err();
        assert_eq!(error.line, 1);
    }

    #[test]
    fn a_missing_file_and_an_empty_one_are_failures() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.jsonl");
        assert_eq!(load(Some(&file), 5).unwrap_err().exit_code(), 1);
        std::fs::write(&file, "\n").unwrap();
        assert!(load(Some(&file), 5).unwrap_err().to_string().contains("no request"));
        std::fs::write(&file, format!("{GOOD}\noops\n")).unwrap();
        assert!(load(Some(&file), 5).unwrap_err().to_string().contains("line 2:"));
    }
}
