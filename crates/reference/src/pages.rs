//! The records as pages. Every text goes through the template, which escapes it.

use maud::{Markup, html};

use crate::frame::Frame;
use crate::load::Reference;
use crate::record::{Record, Snippet};

/// How the pages refer to each other: relative, so that they work behind a proxy's prefix and from a disk.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    records: &'static str,
    assets: &'static str,
    index: &'static str,
    api: &'static str,
    /// The page of the cluster, where there is one.
    cluster: Option<&'static str>,
    page_suffix: &'static str,
    json_suffix: &'static str,
}

impl Links {
    /// The page `/errors` of a server.
    pub(crate) fn served_index() -> Links {
        Links {
            records: "errors/",
            assets: "errors/",
            index: "errors",
            api: "api/errors/",
            cluster: Some("./"),
            page_suffix: "",
            json_suffix: "",
        }
    }

    /// A page `/errors/{id}` of a server.
    pub(crate) fn served_record() -> Links {
        Links {
            records: "",
            assets: "",
            index: "../errors",
            api: "../api/errors/",
            cluster: Some("../"),
            page_suffix: "",
            json_suffix: "",
        }
    }

    /// Files in one folder.
    pub(crate) fn exported() -> Links {
        Links {
            records: "",
            assets: "",
            index: "index.html",
            api: "api/errors/",
            cluster: None,
            page_suffix: ".html",
            json_suffix: ".json",
        }
    }

    fn record(&self, record: &Record) -> String {
        format!("{}{}{}", self.records, record.id, self.page_suffix)
    }

    fn json(&self, record: &Record) -> String {
        format!("{}{}{}", self.api, record.id, self.json_suffix)
    }
}

fn frame(links: &Links, title: &str, content: &Markup) -> String {
    let mut top = vec![("Moonrail error reference", links.index)];
    top.extend(links.cluster.map(|cluster| ("Cluster", cluster)));
    let script = format!("{}search.js", links.assets);
    let frame =
        Frame { title, assets: links.assets, links: &top, styles: &[], scripts: &[&script], wide: false };
    frame.page(content)
}

/// The list, with a search that works without the script too. `query` is the query string of the request.
pub(crate) fn index(links: &Links, query: &str) -> String {
    let reference = Reference::shared();
    let asked = asked(query);
    let mut shown: Vec<&Record> = Vec::new();
    if !asked.trim().is_empty() {
        shown = reference.about(&asked);
        for near in reference.nearest(&asked, 25) {
            if !shown.iter().any(|record| record.id == near.id) {
                shown.push(near);
            }
        }
    }
    let narrowed = !asked.trim().is_empty();
    let records = if narrowed { shown } else { reference.records().iter().collect() };
    let content = html! {
        h1 { "Error reference" }
        form role="search" action=(links.index) method="get" {
            label for="q" { "Search: a code, a message, or words of it" }
            input id="q" name="q" type="search" value=(asked) autocomplete="off" spellcheck="false";
            button type="submit" { "Search" }
        }
        p id="count" role="status" { (records.len()) " of " (reference.records().len()) " records" }
        ul id="records" data-complete=[(!narrowed).then_some("")] {
            @for record in records {
                li data-words=(words(record)) {
                    a href=(links.record(record)) { (record.error_message) }
                    p { (record.cause) }
                    p class="facts" {
                        @if let Some(code) = &record.error_code { code { (code) } " " }
                        span class={ "severity " (record.severity.as_str()) } { (record.severity.as_str()) }
                        " " (record.repo)
                    }
                }
            }
        }
        p id="none" hidden { "No record has all of these words." }
    };
    frame(links, "Moonrail error reference", &content)
}

/// The value of `q` in a query string.
fn asked(query: &str) -> String {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("q=")).unwrap_or_default();
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex =
                    [rest.next(), rest.next()].map(|digit| digit.and_then(|d| (d as char).to_digit(16)));
                let [Some(high), Some(low)] = hex else { continue };
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the script searches in.
fn words(record: &Record) -> String {
    let parts = [
        &record.error_message,
        &record.cause,
        &record.fix,
        &record.slug,
        &record.repo,
        &record.documentation,
    ];
    let mut words: String = parts.map(String::as_str).join(" ");
    for more in record.tags.iter().chain(&record.error_code).chain(&record.seen_as) {
        words.push(' ');
        words.push_str(more);
    }
    words.to_lowercase()
}

/// One record.
pub(crate) fn record(links: &Links, record: &Record) -> String {
    let related: Vec<&Record> =
        record.related.iter().filter_map(|slug| Reference::shared().by_key(slug)).collect();
    let content = html! {
        article {
            h1 { (record.error_message) }
            p class="facts" {
                @if let Some(code) = &record.error_code { code { (code) } " " }
                span class={ "severity " (record.severity.as_str()) } { (record.severity.as_str()) }
                " " (record.repo)
                @if let Some(class) = &record.error_class { " · " code { (class) } }
            }
            section aria-labelledby="short" {
                h2 id="short" { "In short" }
                dl {
                    dt { "Cause" } dd { (record.cause) }
                    dt { "Fix" } dd { (record.fix) }
                }
            }
            section aria-labelledby="message" {
                h2 id="message" { "Error message" }
                @for seen in &record.seen_as { pre tabindex="0" { code { (seen) } } }
            }
            section aria-labelledby="means" { h2 id="means" { "What it means" } (paragraphs(&record.documentation)) }
            section aria-labelledby="solutions" {
                h2 id="solutions" { "Solutions" }
                ol { @for solution in &record.solutions { li { (solution) } } }
            }
            @if let Some(snippet) = &record.example_fix { (code("Example fix", "example", snippet)) }
            section aria-labelledby="when" {
                h2 id="when" { "When it happens" }
                h3 { "Trigger" } (paragraphs(&record.trigger_scenarios))
                h3 { "Common situations" } (paragraphs(&record.common_situations))
            }
            @if let Some(snippet) = &record.validation_code { (code("Check beforehand", "check", snippet)) }
            @if let Some(snippet) = &record.try_catch_pattern { (code("Handle it", "handle", snippet)) }
            section aria-labelledby="prevent" {
                h2 id="prevent" { "Prevention" }
                ul { @for tip in &record.prevention_tips { li { (tip) } } }
            }
            @if !related.is_empty() {
                section aria-labelledby="related" {
                    h2 id="related" { "Related errors" }
                    ul { @for other in related { li { a href=(links.record(other)) { (other.error_message) } } } }
                }
            }
            section aria-labelledby="source" {
                h2 id="source" { "Source" }
                p { (record.source) }
                p { "Checked: " (record.checked) ". Handling: " (record.handling_strategy) ". Tags: " (record.tags.join(", ")) "." }
                p { "Record " code { (record.id) } " as " a href=(links.json(record)) { "JSON" } "; on a terminal: "
                    code { "moonrail explain " (record.error_code.as_ref().filter(|_| record.code.is_some()).unwrap_or(&record.id)) } }
            }
        }
    };
    frame(links, &record.error_message, &content)
}

fn paragraphs(text: &str) -> Markup {
    html! { @for paragraph in text.trim().split("\n\n") { p { (paragraph) } } }
}

fn code(title: &str, id: &str, snippet: &Snippet) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            pre tabindex="0" { code { (snippet.text.trim()) } }
        }
    }
}

/// There is no such record.
pub(crate) fn missing(links: &Links, key: &str) -> String {
    let content = html! {
        h1 { "No such record" }
        p { "There is no record " code { (key) } ". " a href=(links.index) { "All records" } }
    };
    frame(links, "No such record", &content)
}
