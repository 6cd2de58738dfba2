//! The records over HTTP and as files.

#![allow(clippy::unwrap_used)]

use std::fs;

use moonrail_reference::{Answer, Reference, SCHEMA, answer, export};
use serde_json::Value;

fn get(path: &str) -> Answer {
    answer(path, None, None).unwrap()
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn the_list_and_each_record_are_json() {
    let list = json(&get("/api/errors"));
    let errors = list["errors"].as_array().unwrap();
    assert_eq!(errors.len(), Reference::shared().records().len());
    assert_eq!(list["count"], errors.len());
    assert_eq!(list["schemaVersion"], 2);
    for error in errors {
        let record = get(&format!("/api/errors/{}", error["id"].as_str().unwrap()));
        assert_eq!((record.status, record.content_type), (200, "application/json"));
        assert_eq!(json(&record)["slug"], error["slug"]);
    }
    assert_eq!(json(&get("/api/errors/PEER_GONE"))["slug"], "moonrail-peer-gone");
    assert_eq!(get("/api/errors/schema").body, SCHEMA.as_bytes());
    let missing = get("/api/errors/nosuch");
    assert_eq!((missing.status, json(&missing)["key"].as_str().unwrap()), (404, "nosuch"));
}

#[test]
fn an_unchanged_record_is_not_sent_again() {
    let first = get("/api/errors/PEER_GONE");
    let ask = |tags: &str| answer("/api/errors/PEER_GONE", None, Some(tags)).unwrap();
    for tags in [
        first.etag.clone(),
        format!("\"other\", {}", first.etag),
        format!("W/{}", first.etag),
        "*".to_owned(),
    ] {
        let again = ask(&tags);
        assert_eq!((again.status, again.body.len(), again.etag), (304, 0, first.etag.clone()), "{tags}");
    }
    assert_eq!(ask("\"other\"").status, 200);
    assert_ne!(get("/api/errors/METADATA").etag, first.etag);
    assert_eq!(answer("/api/errors/nosuch", None, Some("*")).unwrap().status, 404);
}

#[test]
fn other_paths_are_others() {
    for path in ["/", "/metadata", "/errorsandmore", "/api", "/api/errorsandmore"] {
        assert!(answer(path, None, None).is_none(), "{path}");
    }
}

#[test]
fn every_record_has_a_page_that_says_all_of_it() {
    for record in Reference::shared().records() {
        let page = get(&format!("/errors/{}", record.id));
        assert_eq!((page.status, page.content_type), (200, "text/html; charset=utf-8"));
        let text = String::from_utf8(page.body).unwrap();
        for part in [&record.cause, &record.fix].into_iter().chain(&record.solutions) {
            let escaped =
                part.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            assert!(text.contains(&escaped), "{}: {part}", record.slug);
        }
        assert!(!text.contains("http://") || record_names_http(record), "{}: a link outside", record.slug);
    }
    assert_eq!(get("/errors/nosuch").status, 404);
}

/// Addresses stand in messages; nothing may be loaded from them.
fn record_names_http(record: &moonrail_reference::Record) -> bool {
    let page = String::from_utf8(get(&format!("/errors/{}", record.id)).body).unwrap();
    !page.contains("src=\"http") && !page.contains("href=\"http")
}

#[test]
fn text_from_outside_is_escaped() {
    let page = answer("/errors/<script>alert(1)</script>", None, None).unwrap();
    assert_eq!(page.status, 404);
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("&lt;script&gt;alert(1)") && !text.contains("<script>alert"), "{text}");
    let page = answer("/errors", Some("q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"), None).unwrap();
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("&quot;&gt;&lt;script&gt;") && !text.contains("<script>alert"), "{text}");
}

#[test]
fn the_search_works_without_a_script() {
    let all = String::from_utf8(get("/errors").body).unwrap();
    let found = answer("/errors", Some("q=batch+register+requires+a+newer"), None).unwrap();
    let text = String::from_utf8(found.body).unwrap();
    assert!(text.len() < all.len());
    let first = text.find("<li").unwrap();
    assert!(text[first..].find("batch register requires a newer version").unwrap() < 1500);
    for broken in ["q=%", "q=%4", "q=%zz", "q", "=", "q=%ff"] {
        assert_eq!(answer("/errors", Some(broken), None).unwrap().status, 200, "{broken}");
    }
}

#[test]
fn the_exported_site_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let written = export(&site).unwrap();
    let records = Reference::shared().records();
    assert_eq!(written, 6 + 2 * records.len());
    let index = fs::read_to_string(site.join("index.html")).unwrap();
    for record in records {
        assert!(index.contains(&format!("href=\"{}.html\"", record.id)));
        let page = fs::read_to_string(site.join(format!("{}.html", record.id))).unwrap();
        for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let target = link.split('#').next().unwrap();
            let inside = target.is_empty() || target.starts_with("data:");
            assert!(inside || site.join(target).exists(), "{}: {link}", record.slug);
        }
        let json: Value =
            serde_json::from_slice(&fs::read(site.join(format!("api/errors/{}.json", record.id))).unwrap())
                .unwrap();
        assert_eq!(json["id"], record.id.as_str());
    }
    // A second time over the first one.
    assert_eq!(export(&site).unwrap(), written);
    assert!(export(std::path::Path::new("/proc/nosuch")).is_err());
}
