//! `moonrail doctor` and `moonrail capabilities`, as programs see them. tests/interop has them with genuine peers.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use support::{Running, code, dead_port, finish, json, stderr, stdout};

fn checks<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == name).collect()
}

#[test]
fn capabilities_are_told_and_required() {
    let told = json(&finish(&["capabilities", "--json"]));
    let items = told["capabilities"].as_array().unwrap();
    let of = |name: &str| items.iter().find(|item| item["name"] == name).unwrap();
    assert_eq!(of("mooncake-v2")["available"], true);
    assert_eq!(of("rdma")["available"], false);
    assert!(of("rdma")["fix"].as_str().unwrap().contains("tcp"));
    assert!(stdout(&finish(&["capabilities"])).contains("batch_transfer_sync_write"));

    assert_eq!(code(&finish(&["capabilities", "--require", "tcp", "rail"])), 0);
    let missing = finish(&["capabilities", "--require", "tcp", "rdma", "teleport"]);
    assert_eq!((code(&missing), stdout(&missing).as_str()), (1, ""));
    assert!(
        stderr(&missing).contains("rdma") && stderr(&missing).contains("teleport"),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn two_that_suit_each_other_are_a_clean_matrix() {
    let mut targets = [0, 1].map(|_| Running::start(&["serve", "--size", "1MiB", "--json"]));
    let names = targets.each_mut().map(|target| target.json_line()["session"].as_str().unwrap().to_owned());
    let report = json(&finish(&["doctor", "--json", &names[0], &names[1]]));
    assert_eq!(report["exit_code"], 0);
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    for pair in pairs {
        assert_eq!((&pair["path"], &pair["protocol"]), (&"tcp".into(), &"rail-1".into()));
        assert_eq!(pair["problems"], serde_json::json!([]));
    }
    assert_eq!(report["peers"][1]["registered_bytes"], 1 << 20);
    assert_eq!(report["upgrades"], serde_json::json!([]));
    let text = stdout(&finish(&["doctor", &names[0], &names[1]]));
    assert!(text.lines().any(|line| line.split_whitespace().eq(["A", "-", "rail"])), "{text}");
}

#[test]
fn a_peer_that_is_not_there_is_code_3_and_the_rest_is_told() {
    let mut target = Running::start(&["serve", "--size", "4KiB", "--json"]);
    let name = target.json_line()["session"].as_str().unwrap().to_owned();
    let nobody = format!("127.0.0.1:{}", dead_port());
    let done = finish(&["doctor", "--json", &name, &nobody]);
    assert_eq!(code(&done), 3);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(checks(&report, "peer.unreachable")[0]["code"], "PEER_UNREACHABLE");
    assert!(report["peers"][0]["release"].as_str().unwrap().starts_with("Moonrail"));
    let wrong = finish(&["doctor", "localhost"]);
    assert_eq!(code(&wrong), 2, "{}", stderr(&wrong));
    // With peers no Python is looked at, so to ask for one is a mistake.
    for option in [&["--python", "python3"][..], &["--no-python"]] {
        let wrong = finish(&[&["doctor", name.as_str()][..], option].concat());
        assert_eq!(code(&wrong), 2, "{}", stderr(&wrong));
    }
}

#[test]
fn a_metadata_server_is_asked_for_its_segments() {
    let mut server = Running::start(&["metadata-server", "--port", "0", "--json"]);
    let url = server.json_line()["url"].as_str().unwrap().to_owned();
    let serve =
        ["serve", "--size", "4KiB", "--json", "--metadata-server", &url, "--host", "127.0.0.1", "--name"];
    let mut targets = ["one", "two"].map(|name| Running::start(&[&serve[..], &[name]].concat()));
    for target in &mut targets {
        target.json_line();
    }
    let report = json(&finish(&["doctor", "--json", "--metadata", &url]));
    let names: Vec<&str> =
        report["peers"].as_array().unwrap().iter().map(|peer| peer["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(report["pairs"][0]["protocol"], "rail-1");
    // To look is not to join.
    assert_eq!(
        json(&finish(&["doctor", "--json", "--metadata", &url]))["peers"].as_array().unwrap().len(),
        2
    );
    let nowhere = format!("http://127.0.0.1:{}/metadata", dead_port());
    assert_eq!(code(&finish(&["doctor", "--metadata", &nowhere])), 3);
}

#[test]
fn the_host_is_looked_at() {
    let done = finish(&["doctor", "--json", "--no-python"]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    for name in
        ["host.ports", "host.interfaces", "host.ptrace", "host.memory-lock", "host.clock", "host.rdma"]
    {
        assert_eq!(checks(&report, name).len(), 1, "{name}");
    }
    assert_eq!(report["exit_code"], code(&done));
    let wrong = finish(&["doctor", "--json", "--python", "/no/such/python"]);
    assert_eq!(code(&wrong), 1);
    let report: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!(checks(&report, "python.interpreter")[0]["level"], "problem");
}
