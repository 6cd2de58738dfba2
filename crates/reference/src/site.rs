//! The records over HTTP, and as a folder of files. Knows paths and answers; sockets are others' business.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::frame::{STYLE, THEME};
use crate::load::Reference;
use crate::pages::{self, Links};
use crate::record::Record;
use crate::{SCHEMA, SCHEMA_VERSION};

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = include_str!("../assets/search.js");

/// The answer to a GET.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer {
    /// 200, 304 or 404.
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The body's strong entity tag, in quotes; stable for one build.
    pub etag: String,
    /// Empty for 304.
    pub body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        let body = body.into();
        let hash = blake3::hash(&body).to_hex();
        Answer { status, content_type, etag: format!("\"{}\"", &hash[..32]), body }
    }

    /// Headers that go with every answer: nothing is loaded from elsewhere, nothing runs that is not ours.
    pub const HEADERS: [(&'static str, &'static str); 3] = [
        (
            "content-security-policy",
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-cache"),
    ];
}

/// Answers a GET of `path` (decoded, without query) with its `query`, or `None` where the path is not the reference's.
/// `if_none_match` is the header of that name.
///
/// Paths: `/api/errors`, `/api/errors/schema`, `/api/errors/{key}`, `/errors`, `/errors/{key}`; a key is an id, a slug
/// or a code. `/errors?q=` searches.
#[must_use]
pub fn answer(path: &str, query: Option<&str>, if_none_match: Option<&str>) -> Option<Answer> {
    let answer = match path.strip_prefix("/api/errors") {
        Some("" | "/") => Answer::new(200, JSON, list()),
        Some("/schema") => Answer::new(200, "application/schema+json", SCHEMA),
        Some(rest) => one(rest.strip_prefix('/')?),
        None => match path.strip_prefix("/errors")? {
            "" => Answer::new(200, HTML, pages::index(&Links::served_index(), query.unwrap_or_default())),
            "/style.css" => Answer::new(200, "text/css; charset=utf-8", STYLE),
            "/theme.js" => Answer::new(200, "text/javascript; charset=utf-8", THEME),
            "/search.js" => Answer::new(200, "text/javascript; charset=utf-8", SCRIPT),
            rest => page(rest.strip_prefix('/')?),
        },
    };
    let same = |tag: &str| tag.trim() == "*" || tag.trim().trim_start_matches("W/") == answer.etag;
    if answer.status == 200 && if_none_match.is_some_and(|tags| tags.split(',').any(same)) {
        return Some(Answer { status: 304, body: Vec::new(), ..answer });
    }
    Some(answer)
}

fn list() -> String {
    let records = Reference::shared().records();
    let errors: Vec<_> = records.iter().map(Record::to_short_json).collect();
    json!({ "schemaVersion": SCHEMA_VERSION, "datasetVersion": dataset_version(), "count": errors.len(), "errors": errors })
        .to_string()
}

/// Changes with any record.
fn dataset_version() -> String {
    let mut hash = blake3::Hasher::new();
    for record in Reference::shared().records() {
        hash.update(record.to_json().to_string().as_bytes());
    }
    hash.finalize().to_hex()[..16].to_owned()
}

fn one(key: &str) -> Answer {
    match Reference::shared().by_key(key) {
        Some(record) => Answer::new(200, JSON, record.to_json().to_string()),
        None => Answer::new(404, JSON, json!({ "error": "no such record", "key": key }).to_string()),
    }
}

fn page(key: &str) -> Answer {
    match Reference::shared().by_key(key) {
        Some(record) => Answer::new(200, HTML, pages::record(&Links::served_record(), record)),
        None => Answer::new(404, HTML, pages::missing(&Links::served_record(), key)),
    }
}

/// Writes all of it into `folder` (made where it is not there), as files that work from any web server or straight
/// from the disk: `index.html`, a page for each record, `api/errors/….json`. Returns how many files were written.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn export(folder: &Path) -> io::Result<usize> {
    let api = folder.join("api").join("errors");
    fs::create_dir_all(&api)?;
    let links = Links::exported();
    let mut files = vec![
        (folder.join("index.html"), pages::index(&links, "")),
        (folder.join("style.css"), STYLE.to_owned()),
        (folder.join("theme.js"), THEME.to_owned()),
        (folder.join("search.js"), SCRIPT.to_owned()),
        (api.join("index.json"), list()),
        (api.join("schema.json"), SCHEMA.to_owned()),
    ];
    for record in Reference::shared().records() {
        files.push((folder.join(format!("{}.html", record.id)), pages::record(&links, record)));
        files.push((api.join(format!("{}.json", record.id)), record.to_json().to_string()));
    }
    for (path, text) in &files {
        fs::write(path, text)?;
    }
    Ok(files.len())
}
