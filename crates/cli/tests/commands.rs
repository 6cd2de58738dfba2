//! Every command but the demo, through the built binary.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Running, code, dead_port, finish, json, moonrail, stderr, stdout};

#[test]
fn usage_errors_are_code_2_on_standard_error() {
    for args in [
        &["serve", "--size", "much"][..],
        &["serve", "--name", "x"],
        &["serve", "--metadata-server", "http://127.0.0.1:1/metadata"],
        &["serve", "--port", "70000"],
        &["bench"],
        &["bench", "--segment-id", "127.0.0.1:1", "--buffer-size", "1MiB"],
        &["bench", "--segment-id", "127.0.0.1:1", "--operation", "swap"],
        &["bench", "--mode", "target", "--segment-id", "127.0.0.1:1"],
        &["ping", "127.0.0.1"],
        &["ping", "127.0.0.1:1", "--allow", "everything"],
        &["ping", "127.0.0.1:1", "--count", "0"],
        &["demo", "--tokens-per-block", "17"],
        &["demo", "--model", "gpt-2"],
        &["completions", "korn"],
        &["frobnicate"],
    ] {
        let output = finish(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("moonrail: "), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_benchmark_that_does_not_fit_says_what_does_not() {
    let output =
        finish(&["bench", "--segment-id", "127.0.0.1:1", "--threads", "3", "--buffer-size", "16MiB"]);
    let text = stderr(&output);
    assert!(text.contains("64.00 KiB") && text.contains("128") && text.contains("3 is 24.00 MiB"), "{text}");
    assert!(text.contains("--buffer-size 16.00 MiB"), "{text}");
}

#[test]
fn version_help_and_completions_are_printed() {
    assert_eq!(stdout(&finish(&["--version"])), format!("moonrail {}\n", env!("CARGO_PKG_VERSION")));
    let help = stdout(&finish(&["--help"]));
    for command in
        ["serve", "bench", "ping", "metadata-server", "explain", "reference", "top", "demo", "completions"]
    {
        assert!(help.contains(command), "{command}");
    }
    assert!(!help.contains("demo-worker"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = finish(&["completions", shell]);
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("metadata-server"), "{shell}");
    }
}

#[test]
fn a_dead_peer_is_told_apart() {
    let peer = format!("127.0.0.1:{}", dead_port());
    let started = Instant::now();
    let ping = finish(&["ping", &peer]);
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(code(&ping), 1);
    assert!(stderr(&ping).contains("PEER_UNREACHABLE") && stderr(&ping).contains(&peer), "{}", stderr(&ping));

    let ping = finish(&["ping", &peer, "--json"]);
    assert_eq!(code(&ping), 1);
    let value: serde_json::Value = serde_json::from_slice(&ping.stdout).unwrap();
    assert_eq!(value["alive"], false);
    assert_eq!(value["error"]["code"], "PEER_UNREACHABLE");

    let bench = finish(&["bench", "--segment-id", &peer, "--duration", "1"]);
    assert_eq!(code(&bench), 3, "{}", stderr(&bench));
}

#[test]
fn serve_ping_and_bench_work_together() {
    let mut serve = Running::start(&["serve", "--size", "8MiB", "--json"]);
    let ready = serve.json_line();
    let session = ready["session"].as_str().unwrap().to_owned();
    assert_eq!(ready["buffer"]["size"], 8 << 20);

    let ping = json(&finish(&["ping", &session, "--count", "2", "--json"]));
    assert_eq!((&ping["alive"], &ping["answered"]), (&true.into(), &2.into()));
    assert_eq!(ping["buffers"][0]["addr"], ready["buffer"]["addr"]);
    assert_eq!(ping["buffers"][0]["length"], 8 << 20);
    assert_eq!(ping["epoch"], ready["epoch"]);
    assert_eq!(ping["release"], format!("Moonrail {}", env!("CARGO_PKG_VERSION")));
    let text = stdout(&finish(&["ping", &session, "-c", "1"]));
    assert!(text.contains("1 of 1 answered") && text.contains("8.00 MiB"), "{text}");

    let load = [
        "--threads",
        "2",
        "--block-size",
        "64k",
        "--batch-size",
        "16",
        "--buffer-size",
        "4MiB",
        "--duration",
        "1",
    ];
    let bench = |operation: &str, more: &[&str]| {
        let args = [&["bench", "--segment-id", &session, "--operation", operation], &load[..], more].concat();
        finish(&args)
    };
    let write = json(&bench("write", &["--json"]));
    let (batches, bytes) = (write["batches"].as_u64().unwrap(), write["bytes"].as_u64().unwrap());
    assert!(batches > 0);
    assert_eq!(bytes, batches * 16 * 65536);
    assert!(write["batch_latency_us"]["p50"].as_f64() <= write["batch_latency_us"]["max"].as_f64());
    let read = bench("read", &["--report-unit", "MiB"]);
    assert_eq!(code(&read), 0, "{}", stderr(&read));
    let last = stdout(&read).lines().last().unwrap().to_owned();
    assert!(last.starts_with("Test completed: duration ") && last.ends_with(" MiB/s"), "{last}");

    let small = bench("read", &["--threads", "9", "--buffer-size", "32MiB"]);
    assert_eq!(code(&small), 2, "--threads twice");
    let large = finish(&["bench", "--segment-id", &session, "--threads", "2", "--buffer-size", "16MiB"]);
    assert_eq!(code(&large), 1);
    assert!(stderr(&large).contains("8.00 MiB"), "{}", stderr(&large));

    serve.signal("TERM");
    let summary = serve.json_line();
    // The batches that do not count are written as well.
    assert!(summary["bytes_in"].as_u64().unwrap() >= bytes, "{summary}");
    assert!(summary["bytes_out"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(serve.wait(), Some(0));
}

#[test]
fn an_interrupt_ends_what_is_under_way() {
    let mut serve = Running::start(&["serve", "--size", "1MiB", "--json"]);
    let session = serve.json_line()["session"].as_str().unwrap().to_owned();
    let mut ping = Running::start(&["ping", &session, "--count", "1000000"]);
    assert!(ping.line().contains("Moonrail"));
    ping.signal("INT");
    assert_eq!(ping.wait(), None, "it ends by the signal");
}

#[test]
fn a_target_listens_on_the_port_it_was_given_or_fails() {
    let mut serve = Running::start(&["bench", "--mode", "target", "--buffer-size", "1MiB"]);
    let session = serve.line().trim().strip_prefix("session ").unwrap().to_owned();
    let port = session.rsplit_once(':').unwrap().1;
    let second = finish(&["serve", "--port", port, "--size", "4096"]);
    assert_eq!(code(&second), 1);
    assert!(stderr(&second).contains("LISTEN_FAILED"), "{}", stderr(&second));
    serve.signal("INT");
    assert_eq!(serve.wait(), Some(0));
}

#[test]
fn a_metadata_server_brings_peers_together() {
    let mut server = Running::start(&["metadata-server", "--port", "0", "--json"]);
    let url = server.json_line()["url"].as_str().unwrap().to_owned();
    let at = ["--metadata-server", &url];
    let mut serve = Running::start(
        &[&["serve", "--host", "127.0.0.1", "--name", "target", "--size", "1MiB", "--json"], &at[..]]
            .concat(),
    );
    assert_eq!(serve.json_line()["session"], "target");
    let ping = json(&finish(&[&["ping", "target", "-c", "1", "--json"], &at[..]].concat()));
    assert_eq!(ping["buffers"][0]["length"], 1 << 20);
    let load = ["--threads", "1", "--batch-size", "4", "--buffer-size", "1MiB", "--duration", "1", "--json"];
    let bench = json(&finish(&[&["bench", "--segment-id", "target"], &load[..], &at].concat()));
    assert!(bench["batches"].as_u64().unwrap() > 0);
    let absent = finish(&[&["ping", "nobody"], &at[..]].concat());
    assert_eq!(code(&absent), 1);
    serve.signal("INT");
    assert_eq!(serve.wait(), Some(0));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    for args in
        [&["--help"][..], &["completions", "bash"], &["demo", "--requests", "1", "--tokens-per-block", "16"]]
    {
        let mut child = moonrail(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
        assert!(matches!(code(&output), 0 | 141), "{args:?}: {}", code(&output));
    }
}

#[test]
fn a_code_a_number_and_a_message_are_explained() {
    for (asked, expected) in [
        ("PEER_GONE", "PEER_GONE peer <peer>"),
        ("-102", "-102 ERR_SOCKET"),
        (
            "Mooncake's batch register requires a newer version of mooncake-transfer-engine.",
            "batch register requires",
        ),
    ] {
        let output = finish(&["explain", asked]);
        assert_eq!(code(&output), 0, "{asked}: {}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains(expected), "{asked}: {text}");
        for part in ["Cause: ", "Fix:   ", "Solutions:\n  1. ", "Trigger: "] {
            assert!(text.contains(part), "{asked}: {text}");
        }
    }
    let value = json(&finish(&["explain", "--json", "PEER_GONE"]));
    assert_eq!(value["found"][0]["slug"], "moonrail-peer-gone");
    // Unquoted words are one message, and the flag may stand behind them.
    let value =
        json(&finish(&["explain", "the", "peer", "rejected", "Notify", "rejected", "by", "x", "--json"]));
    assert_eq!(value["found"][0]["slug"], "mooncake-notify-rejected");
}

#[test]
fn an_unknown_message_has_neighbours_and_an_exit_code() {
    let output = finish(&["explain", "my queue of notifications overflows"]);
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("The nearest by its words"), "{}", stdout(&output));
    assert!(stderr(&output).contains("no record of this message"), "{}", stderr(&output));
    assert_eq!(code(&finish(&["explain"])), 2);
    assert_eq!(code(&finish(&["explain", "X", "--log", "y"])), 2);
}

#[test]
fn a_log_is_explained_from_a_file_and_from_standard_input() {
    use std::io::Write;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prefill.log");
    let log = "moonrail WARNING batch_transfer_sync_write returned -1: PEER_GONE peer 127.0.0.1:15001 (transfer, retry unsafe): \
               the peer's process, or its engine, has ended [moonrail explain PEER_GONE]\nFailed to send kv chunk of 7 to 10.0.0.2:99\n\
               Decode instance could be dead, remote mooncake session 127.0.0.1:15001 is not alive\n";
    std::fs::write(&file, log).unwrap();
    let output = finish(&["explain", "--log", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    let places: Vec<usize> = ["PEER_GONE peer", "Failed to send kv chunk", "Decode instance could be dead"]
        .map(|what| text.find(what).unwrap())
        .into();
    assert!(places.is_sorted(), "{text}");
    assert!(
        text.contains("follows from something else: line 2")
            && text.contains("Look first at: line 1: PEER_GONE"),
        "{text}"
    );

    let mut child = moonrail(&["explain", "--log", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let value = json(&child.wait_with_output().unwrap());
    assert_eq!(value["lines"], 3);
    assert_eq!(value["found"].as_array().unwrap().len(), 3);
    assert_eq!(value["firstCause"], value["found"][0]["id"]);

    std::fs::write(&file, "all is well\n").unwrap();
    assert_eq!(code(&finish(&["explain", "--log", file.to_str().unwrap()])), 1);
    let missing = finish(&["explain", "--log", "/no/such/file"]);
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains("/no/such/file"));
}

#[test]
fn an_error_prints_its_code_and_the_command_that_explains_it() {
    let peer = format!("127.0.0.1:{}", dead_port());
    let ping = finish(&["ping", &peer]);
    let text = stderr(&ping);
    let told = text.split_once("[moonrail explain ").unwrap().1.split_once(']').unwrap().0;
    assert_eq!(told, "PEER_UNREACHABLE");
    assert_eq!(code(&finish(&["explain", told])), 0);
    let whole = finish(&["explain", text.trim()]);
    assert_eq!(code(&whole), 0, "{}", stderr(&whole));
}

#[test]
fn the_reference_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let value = json(&finish(&["reference", "export", site.to_str().unwrap(), "--json"]));
    assert!(value["files"].as_u64().unwrap() > 200);
    assert!(site.join("index.html").exists());
    assert_eq!(code(&finish(&["reference", "export", "/proc/nosuch"])), 1);
}

#[test]
fn a_target_with_a_key_is_for_those_who_have_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, key: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, key).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (key, other) = (file("key", "the key of the test"), file("other", "another key of the test"));
    let mut target = Running::start(&["serve", "--size", "1MiB", "--key-file", &key, "--readonly", "--json"]);
    let session = target.json_line()["session"].as_str().unwrap().to_owned();
    let bench = |extra: &[&str]| {
        let common = [
            "bench",
            "--segment-id",
            &session,
            "--duration",
            "1",
            "--threads",
            "1",
            "--batch-size",
            "1",
            "--json",
        ];
        finish(&[&common[..], extra].concat())
    };
    assert!(json(&bench(&["--key-file", &key]))["batches"].as_u64().unwrap() > 0);
    for (extra, part) in [
        (&["--key-file", &key, "--operation", "write"][..], "PERMISSION_DENIED"),
        (&["--key-file", &other], "KEY_REFUSED"),
        (&[], "KEY_REQUIRED"),
    ] {
        let output = bench(extra);
        assert_eq!(code(&output), 1);
        let text = stderr(&output);
        assert!(text.contains(part) && !text.contains("key of the test"), "{text}");
    }
    let by_variable = |name: &str, value: &str| {
        let mut command = moonrail(&["ping", &session, "--count", "1", "--json"]);
        command.env(name, value).output().unwrap()
    };
    for (name, value) in [("MOONRAIL_KEY_FILE", key.as_str()), ("MOONRAIL_KEY", "the key of the test")] {
        assert_eq!(json(&by_variable(name, value))["dialect"], "rail");
    }
    let refused = by_variable("MOONRAIL_KEY", "secret");
    assert!(
        stderr(&refused).contains("MOONRAIL_KEY: a key of 6 bytes") && !stderr(&refused).contains("secret")
    );
    target.signal("INT");
    assert_eq!(target.json_line()["bytes_in"], 0);
    assert_eq!(target.wait(), Some(0));
}
