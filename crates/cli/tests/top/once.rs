//! One look, for people and for programs.

use super::reporter::{RATE, Reporter};
use super::support::{code, dead_port, finish, json, moonrail, stderr, stdout};

#[test]
fn without_a_terminal_it_says_what_to_give_instead() {
    let reporter = Reporter::start("near");
    let output = finish(&["top", &reporter.url()]);
    assert_eq!((code(&output), stdout(&output).as_str()), (2, ""));
    assert!(
        stderr(&output).contains("--once") && stderr(&output).contains("terminal"),
        "{}",
        stderr(&output)
    );
    assert_eq!(reporter.asked(), 0);
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for args in [
        &["top"][..],
        &["top", "nowhere"],
        &["top", "http://127.0.0.1:1/other"],
        &["top", "127.0.0.1:1", "--interval", "0.01"],
        &["top", "127.0.0.1:1", "--sort", "colour"],
    ] {
        assert_eq!(code(&finish(args)), 2, "{args:?}");
    }
}

#[test]
fn one_table_has_rates_and_failures_with_their_command() {
    let reporter = Reporter::start("near");
    let output = finish(&["top", "--once", "--interval", "0.3", &reporter.url()]);
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for part in
        ["near", "far:15000", "64.0", "MiB/s", "120 us", "950 us", "moonrail explain PEER_GONE", "5 s ago"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn programs_get_the_same_figures() {
    let reporter = Reporter::start("near");
    let told = json(&finish(&["top", "--json", "--interval", "0.3", &reporter.url()]));
    assert_eq!(told["engines"][0]["url"], reporter.url());
    let rate = told["transfers"][0]["bytes_per_second"].as_f64().unwrap();
    assert!((rate / RATE - 1.0).abs() < 0.01, "{rate}");
    assert_eq!(told["failures"][0]["explain"], "moonrail explain PEER_GONE");
    let none = json(&finish(&["top", "--json", "--interval", "0.1", "--filter", "nobody", &reporter.url()]));
    assert_eq!(none["transfers"], serde_json::json!([]));
}

#[test]
fn an_engine_that_is_not_there_is_named_with_the_reason_and_code_3() {
    let reporter = Reporter::start("near");
    let dead = format!("127.0.0.1:{}", dead_port());
    let output = finish(&["top", "--once", "--interval", "0.1", &reporter.url(), &dead]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let text = stdout(&output);
    let line = text.lines().find(|line| line.contains(&dead)).unwrap();
    assert!(line.contains("unreachable") && line.contains("refused"), "{text}");
    assert!(text.contains("near") && text.contains("MiB/s"), "{text}");
}

#[test]
fn a_metadata_server_that_is_not_there_is_an_error() {
    let url = format!("http://127.0.0.1:{}/metadata", dead_port());
    let output = moonrail(&["top", "--once", "--metadata", &url]).output().unwrap();
    assert_ne!(code(&output), 0);
    assert!(stderr(&output).contains("cannot list the segments"), "{}", stderr(&output));
}
