//! The page of the cluster and its JSON: raw HTTP on real sockets, engines that answer for their figures over HTTP.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod engine;
mod look;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use common::{dead_port, typically, within};
use engine::{FakeEngine, report};
use look::Cluster;
use serde_json::{Value, json};

#[test]
fn what_is_registered_is_shown_to_people_and_to_programs() {
    within(30, || {
        let cluster = Cluster::start();
        cluster.register_moonrail("decode-0", 7, None);
        cluster.register_mooncake("old-one", 1);
        let page = cluster.page("");
        for part in
            ["decode-0", "Moonrail 0.1.0", "epoch <code>0000000000000007</code>", "8.00 MiB", "old-one"]
        {
            assert!(page.body.contains(part), "{part}: {}", page.body);
        }
        assert!(page.body.contains("start it with MOONRAIL_METRICS=HOST:PORT"), "{}", page.body);
        assert!(page.field("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert_eq!(page.field("vary"), Some("accept"));
        let shown = cluster.json();
        assert_eq!(shown["segments"].as_array().unwrap().len(), 2);
        assert_eq!(shown["segments"][0]["name"], "decode-0");
        assert_eq!(shown["segments"][1]["release"], "Mooncake 0.3.5-0.3.11");
        // Who does not ask for HTML gets the list that was always there.
        assert!(cluster.get("/", "").body.starts_with("2 segments\n"));
        assert!(cluster.get("/?json", "Accept: text/html\r\n").body.starts_with("{\"segments\""));
        for asset in ["/status.css", "/status.js", "/errors/style.css", "/errors/theme.js"] {
            assert_eq!(cluster.get(asset, "").status, 200, "{asset}");
            assert!(page.body.contains(asset.trim_start_matches('/')), "{asset}");
        }
    });
}

#[test]
fn the_matrix_says_who_lies_to_whom() {
    within(30, || {
        let cluster = Cluster::start();
        cluster.register_moonrail("new", 7, None);
        cluster.register_mooncake("old", 1);
        let shown = cluster.json();
        let of = |name: &str| {
            let kinds = shown["kinds"].as_array().unwrap();
            kinds.iter().find(|kind| kind["names"][0] == name).unwrap()["letter"].clone()
        };
        let pair = |from: &str, to: &str| {
            let pairs = shown["pairs"].as_array().unwrap();
            pairs.iter().find(|p| p["initiator"] == of(from) && p["target"] == of(to)).unwrap().clone()
        };
        assert_eq!(pair("old", "new")["level"], "lies");
        assert_eq!(pair("old", "new")["ways"][0]["says"], "v1 LIES");
        assert_eq!(pair("new", "old")["level"], "note");
        assert_eq!(pair("new", "new")["level"], "none");
        let problem = &shown["problems"][0];
        assert!(problem["what"].as_str().unwrap().contains("false-success"), "{problem}");
        assert!(cluster.page("").body.contains("v1 LIES"));
    });
}

#[test]
fn rates_come_from_two_answers_and_failures_lead_to_their_record() {
    within(30, || {
        let cluster = Cluster::start();
        let engine = FakeEngine::start(report(9));
        cluster.register_moonrail("prefill", 9, Some(&engine.url()));
        assert_eq!(cluster.json()["segments"][0]["figures"]["read_per_second"], Value::Null);
        let mut second = report(9);
        second["peers"][0]["ops"][0]["bytes"] = json!(5_000_000);
        second["failures"] = json!([{
            "time_ms": 1_000_000, "code": "PEER_GONE", "stage": "connect", "peer": "decode", "op": "write",
            "retry_safe": true, "message": "the peer is gone"
        }]);
        second["time_ms"] = json!(1_007_000);
        engine.say(second);
        std::thread::sleep(Duration::from_millis(1100));
        let shown = cluster.json();
        let rate = shown["segments"][0]["figures"]["read_per_second"].as_f64().unwrap();
        assert!((1e6..5e6).contains(&rate), "{rate}");
        assert_eq!(shown["rates"].as_array().unwrap().len(), 1);
        assert_eq!(shown["links"][0]["peer"], "decode");
        let failure = &shown["failures"][0];
        assert_eq!(
            (failure["record"].as_str(), failure["seconds_ago"].as_u64()),
            (Some("errors/PEER_GONE"), Some(7))
        );
        assert!(shown["problems"][0]["what"].as_str().unwrap().contains("PEER_GONE"));
        let page = cluster.page("").body;
        assert!(page.contains("<title>(1) Moonrail cluster</title>"), "{page}");
        assert!(page.contains("href=\"errors/PEER_GONE\"") && page.contains("<svg"), "{page}");
        assert_eq!(cluster.get("/errors/PEER_GONE", "").status, 200);
    });
}

#[test]
fn engines_are_asked_only_while_somebody_looks_and_once_a_second() {
    within(30, || {
        let cluster = Cluster::start();
        let engine = FakeEngine::start(report(9));
        cluster.register_moonrail("prefill", 9, Some(&engine.url()));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(engine.asked(), 0);
        let started = Instant::now();
        for _ in 0..20 {
            cluster.json();
            cluster.page("");
        }
        let most = 2 + started.elapsed().as_secs() as usize;
        assert!((1..=most).contains(&engine.asked()), "asked {} times", engine.asked());
    });
}

#[test]
fn nothing_that_others_wrote_is_markup() {
    within(30, || {
        let evil = "\"><script>alert(1)</script>\u{202e}";
        let mut hostile = report(9);
        hostile["fallbacks"] = json!([evil]);
        hostile["peers"][0]["name"] = json!(evil);
        hostile["peers"][0]["path"] = json!(evil);
        hostile["failures"] =
            json!([{ "time_ms": 1, "code": evil, "stage": evil, "peer": evil, "op": evil, "message": evil }]);
        let cluster = Cluster::start();
        let engine = FakeEngine::start(hostile);
        cluster.register_moonrail(evil, 9, Some(&engine.url()));
        let page = cluster.page("");
        assert!(page.body.contains("&lt;script&gt;alert(1)"), "{}", page.body);
        assert!(!page.body.contains("<script>alert") && !page.body.contains('\u{202e}'), "{}", page.body);
        let filtered = cluster.page("q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").body;
        assert!(filtered.contains("&lt;script&gt;") && !filtered.contains("<script>alert"), "{filtered}");
        assert_eq!(cluster.json()["failures"][0]["record"], Value::Null);
    });
}

#[test]
fn nobody_is_called_but_who_was_announced_and_nobody_else_is_believed() {
    within(30, || {
        let cluster = Cluster::start();
        let innocent = FakeEngine::start(report(1));
        let redirect = FakeEngine::redirecting(&innocent.url());
        let other = FakeEngine::start(report(0xbad));
        let url = innocent.url();
        for (index, announced) in [
            format!("{url}/metadata"),
            format!("{url}?x=1"),
            url.replace("http", "https"),
            format!("{url}@x:1"),
        ]
        .iter()
        .enumerate()
        {
            cluster.register_moonrail(&format!("n{index}"), 1, Some(announced));
        }
        // Of another machine, so this one's loopback is not its.
        cluster.register_at("far", "10.255.255.1", 1, Some(&url));
        cluster.register_moonrail("redirected", 1, Some(&redirect.url()));
        cluster.register_moonrail("another", 1, Some(&other.url()));
        let shown = cluster.json();
        assert_eq!((innocent.asked(), redirect.asked(), other.asked()), (0, 1, 1));
        for segment in shown["segments"].as_array().unwrap() {
            assert!(segment["figures"]["missing"].is_string(), "{segment}");
            assert_eq!(segment["figures"]["transfers"], Value::Null, "{segment}");
        }
        let why = |name: &str| {
            let all = shown["segments"].as_array().unwrap();
            all.iter().find(|s| s["name"] == name).unwrap()["figures"]["missing"].as_str().unwrap().to_owned()
        };
        assert!(why("another").contains("another engine") && why("far").contains("loopback"));
        assert!(why("redirected").contains("status 302"), "{}", why("redirected"));
    });
}

#[test]
fn engines_that_hang_or_are_gone_delay_no_engine_that_registers() {
    within(60, || {
        let cluster = Cluster::start();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let hangs = format!("http://{}", silent.local_addr().unwrap());
        for index in 0..200 {
            cluster.register_moonrail(&format!("hangs-{index}"), 1, Some(&hangs));
        }
        cluster.register_moonrail("gone", 1, Some(&format!("http://127.0.0.1:{}", dead_port())));
        let at = cluster.address();
        let looking = std::thread::spawn(move || {
            let started = Instant::now();
            let page = look::get(at, "/", "Accept: text/html\r\n");
            (page.status, started.elapsed())
        });
        std::thread::sleep(Duration::from_millis(200));
        let taken = typically(|| drop(cluster.get("/metadata?key=mooncake/ram/gone", "")));
        assert!(taken < Duration::from_millis(50), "an engine waited {taken:?}");
        let (status, took) = looking.join().unwrap();
        assert_eq!(status, 200);
        assert!(took < Duration::from_secs(5), "the page took {took:?}");
        let page = cluster.page("q=gone").body;
        assert!(page.contains("connection refused"), "{page}");
        assert!(page.contains("no answer from"), "{page}");
    });
}

#[test]
fn long_answers_and_endless_ones_are_cut_off() {
    within(30, || {
        let cluster = Cluster::start();
        let mut long = report(1);
        long["name"] = json!("x".repeat(3 << 20));
        let engine = FakeEngine::start(long);
        cluster.register_moonrail("talks", 1, Some(&engine.url()));
        let missing = cluster.json()["segments"][0]["figures"]["missing"].as_str().unwrap().to_owned();
        assert!(missing.contains("longer than") || missing.contains("in time"), "{missing}");
    });
}

#[test]
fn thousands_of_segments_fit_the_page() {
    within(60, || {
        let cluster = Cluster::start();
        let mut stream = common::connect(cluster.address());
        for index in 0..3000 {
            cluster.register_over(&mut stream, &format!("node-{index:04}"), "127.0.0.1", 1 + index, None);
        }
        let started = Instant::now();
        let page = cluster.page("");
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
        assert!(page.body.len() < 200_000, "{} bytes", page.body.len());
        assert!(page.body.contains("and 2900 more segments: filter"), "{}", page.body);
        let one = cluster.page("q=NODE-2999").body;
        assert!(one.contains("node-2999") && !one.contains(">node-0000<"), "{one}");
        assert_eq!(cluster.json()["kinds"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn entries_without_a_readable_descriptor_are_problems() {
    within(30, || {
        let cluster = Cluster::start();
        cluster.put("mooncake/rpc_meta/broken", r#"{"ip_or_host_name":"127.0.0.1","rpc_port":15001}"#);
        cluster.put("mooncake/ram/broken", r#"{"protocol":"no such"}"#);
        cluster.put("mooncake/rpc_meta/half", r#"{"ip_or_host_name":"127.0.0.1","rpc_port":15002}"#);
        cluster.put("whatever", "not a descriptor");
        let shown = cluster.json();
        let states: Vec<&str> =
            shown["segments"].as_array().unwrap().iter().map(|s| s["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["unreadable", "no-descriptor"]);
        assert_eq!(shown["problems"][0]["concerns"][0], "broken");
        let page = cluster.page("").body;
        assert!(page.contains("its descriptor cannot be read: "), "{page}");
    });
}
