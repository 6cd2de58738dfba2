//! What every record must be.

#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::path::Path;

use moonrail_reference::{Matcher, Record, Reference, SCHEMA, Severity};

fn records() -> &'static [Record] {
    Reference::shared().records()
}

#[test]
fn the_built_in_records_can_be_read_and_are_all_of_the_folder() {
    Reference::built_in().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
    let slugs: HashSet<&str> = records().iter().map(|record| record.slug.as_str()).collect();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("slug = ")) {
            assert!(slugs.contains(line.trim_matches('"')), "{}: {line} is not built in", path.display());
        }
    }
}

#[test]
fn there_are_as_many_as_were_promised() {
    assert!(records().len() >= 120, "{} records", records().len());
}

#[test]
fn every_record_has_the_published_shape() {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.enable_format_assertions();
    compiler.add_resource("/schema.json", serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let schema = compiler.compile("/schema.json", &mut schemas).unwrap();
    for record in records() {
        let json = record.to_json();
        schemas.validate(&json, schema).map_err(|error| format!("{}: {error}", record.slug)).unwrap();
    }
}

#[test]
fn an_identity_is_never_used_twice() {
    let mut keys = HashMap::new();
    for record in records() {
        for key in [&record.id, &record.slug, &record.message_pattern] {
            assert_eq!(keys.insert(key, &record.slug), None, "{key}");
        }
    }
}

#[test]
fn every_pattern_finds_its_own_messages() {
    for record in records() {
        regex::Regex::new(&record.message_pattern)
            .map_err(|error| format!("{}: {error}", record.slug))
            .unwrap();
        for seen in &record.seen_as {
            let found = Matcher::shared().of_line(seen);
            assert!(
                found.iter().any(|found| found.id == record.id),
                "{}: not found in {seen:?}; found {:?}",
                record.slug,
                found.iter().map(|found| &found.slug).collect::<Vec<_>>()
            );
        }
    }
}

/// A message about one thing must not be explained as another.
#[test]
fn no_message_is_taken_for_another_records() {
    for record in records() {
        for seen in &record.seen_as {
            let found = Matcher::shared().of_line(seen);
            let strangers: Vec<&str> = found
                .iter()
                .filter(|other| other.id != record.id)
                .filter(|other| {
                    !record.related.contains(&other.slug) && !other.related.contains(&record.slug)
                })
                .map(|other| other.slug.as_str())
                .collect();
            assert!(strangers.is_empty(), "{}: {seen:?} is also {strangers:?}", record.slug);
        }
    }
}

#[test]
fn patterns_do_not_match_ordinary_lines() {
    let ordinary = [
        "INFO 12-01 03:11:11 [engine.py:12] Avg prompt throughput: 1201.3 tokens/s, running: 3 reqs",
        "[2026-12-01 03:11:11 TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01",
        "I1201 03:11:11.351503 15722 transfer_engine_impl.cpp:183] Transfer Engine RPC using P2P handshake, listening on 127.0.0.1:16222",
        "{\"log\":\"GET /health HTTP/1.1 200 OK\\n\",\"stream\":\"stdout\"}",
        "The error was connection time memory address device failed system",
        "Traceback (most recent call last):",
    ];
    for line in ordinary {
        assert!(Matcher::shared().of_line(line).is_empty(), "{line}");
    }
}

#[test]
fn every_relation_leads_to_a_record() {
    for record in records() {
        let mut seen = HashSet::new();
        for slug in &record.related {
            let other = Reference::shared().by_key(slug);
            assert!(other.is_some_and(|other| other.slug == *slug), "{}: no {slug}", record.slug);
            assert!(slug != &record.slug && seen.insert(slug), "{}: {slug}", record.slug);
        }
    }
}

#[test]
fn texts_are_whole_sentences_without_loose_ends() {
    for record in records() {
        for text in [
            &record.cause,
            &record.fix,
            &record.documentation,
            &record.trigger_scenarios,
            &record.common_situations,
        ]
        .into_iter()
        .chain(&record.solutions)
        .chain(&record.prevention_tips)
        {
            assert!(text.trim() == text && text.len() >= 12, "{}: {text:?}", record.slug);
            let end = text.chars().last().unwrap();
            assert!(matches!(end, '.' | '?' | ')' | '"'), "{}: {text:?} does not end", record.slug);
            for loose in ["TODO", "FIXME", "XXX", "  "] {
                assert!(!text.contains(loose), "{}: {text:?}", record.slug);
            }
        }
        assert!(
            record.cause.len() <= 240 && record.fix.len() <= 240,
            "{}: a short answer is short",
            record.slug
        );
        assert!(record.severity == Severity::Info || record.solutions.len() >= 2, "{}", record.slug);
    }
}

#[test]
fn records_stay_small() {
    let all: usize = records().iter().map(|record| record.to_json().to_string().len()).sum();
    assert!(all < 600_000, "{all} bytes of JSON");
}

#[test]
fn a_record_is_found_by_code_number_id_and_slug() {
    let reference = Reference::shared();
    for key in ["PEER_GONE", "peer_gone", "moonrail-peer-gone"] {
        assert_eq!(reference.by_key(key).unwrap().error_code.as_deref(), Some("PEER_GONE"), "{key}");
    }
    let id = &reference.by_key("PEER_GONE").unwrap().id;
    assert_eq!(reference.by_key(id).unwrap().slug, "moonrail-peer-gone");
    assert_eq!(reference.by_key("-102").unwrap().slug, "mooncake-err-socket");
    assert!(reference.by_key("PEER_WENT").is_none());
}

#[test]
fn an_unknown_message_has_neighbours() {
    let near =
        Reference::shared().nearest("the decode server cannot reach my prefill, connection refused", 5);
    assert_eq!(near.len(), 5);
    assert!(near.iter().any(|record| record.slug == "sglang-fetch-prefill-info"), "{near:?}");
    assert!(Reference::shared().nearest("qqq zzz", 5).is_empty());
}
