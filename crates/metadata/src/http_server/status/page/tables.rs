//! Failures, segments and transfers as tables, each with its first rows and a word on how many more there are.

use maud::{Markup, PreEscaped, html};

use super::super::cluster::{Cluster, FailureView, Figures, Link, SegmentView, State};
use super::super::plot;
use super::super::text::{bytes, counted, latency, span, speed, time_of_day};
use super::super::watch::WINDOW;

/// Rows of a table; the filter leads to the others.
const SEGMENTS: usize = 100;
const LINKS: usize = 20;
const FAILURES: usize = 50;

pub(super) fn failures(cluster: &Cluster, filter: &str) -> Markup {
    let matching = |failure: &&FailureView| {
        has(&failure.engine, filter) || failure.peer.as_ref().is_some_and(|peer| has(peer, filter))
    };
    let all: Vec<&FailureView> = cluster.failures.iter().filter(matching).collect();
    let newest = cluster.failures.iter().map(|failure| failure.time_ms).max().unwrap_or_default();
    html! {
        section aria-labelledby="failures-title" {
            h2 id="failures-title" { "Recent failures" }
            div id="failures" data-live data-count=(all.len()) data-newest=(newest) {
                @if all.is_empty() { p { "None in the last hour" (of_those(filter)) "." } } @else {
                    (table("Failed transfers of the last hour, the newest first",
                        &["When (UTC)", "Error", "From", "To", "Stage", "Retry", "Message"],
                        html! { @for failure in all.iter().take(FAILURES) { (failure_row(failure)) } }))
                    (more(all.len(), FAILURES, "failure"))
                }
            }
        }
    }
}

fn failure_row(failure: &FailureView) -> Markup {
    html! {
        tr {
            td class="nowrap" { (time_of_day(failure.time_ms)) br; span class="facts" { (span(failure.seconds_ago)) " ago" } }
            th scope="row" {
                @match &failure.record {
                    Some(record) => a href=(record) { code { (failure.code) } },
                    None => code { (failure.code) },
                }
            }
            td class="name" { (failure.engine) }
            td class="name" { (failure.peer.as_deref().unwrap_or("—")) }
            td { (failure.stage) @if let Some(op) = &failure.op { br; span class="facts" { (op) } } }
            td class="nowrap" { @if failure.retry_safe { "safe" } @else { "not safe" } }
            td class="text" { (failure.message) }
        }
    }
}

pub(super) fn segments(cluster: &Cluster, filter: &str) -> Markup {
    let mut all: Vec<&SegmentView> =
        cluster.segments.iter().filter(|segment| has(&segment.name, filter)).collect();
    // Those with trouble first; the rest stays in the order of names.
    all.sort_by_key(|segment| !(segment.figures.silent || segment.state != State::Described));
    html! {
        section aria-labelledby="segments-title" {
            h2 id="segments-title" { "Segments" }
            form role="search" action="./" method="get" {
                label for="q" { "Only those with this in their name (tables of segments, transfers and failures)" }
                input id="q" name="q" type="search" value=(filter) autocomplete="off" spellcheck="false";
                button type="submit" { "Filter" }
            }
            div id="segments" data-live {
                @if all.is_empty() { p { "No segment is registered" (of_those(filter)) "." } } @else {
                    (table("Registered segments",
                        &["Name", "State", "Release", "Addresses", "Memory", "Now", "Since start"],
                        html! { @for segment in all.iter().take(SEGMENTS) { (segment_row(segment)) } }))
                    (more(all.len(), SEGMENTS, "segment"))
                }
            }
        }
    }
}

fn segment_row(segment: &SegmentView) -> Markup {
    let figures = &segment.figures;
    html! {
        tr {
            th scope="row" class="name" { (segment.name) @if segment.space != "mooncake/" { br; span class="facts" { (segment.space) } } }
            td class="state" { (state_of(segment)) }
            td class="release" {
                (segment.release.as_deref().unwrap_or("not known"))
                @if let (Some(protocol), Some(version)) = (&segment.protocol, segment.data_version) {
                    br; span class="facts" { (protocol) ", data v" (version) }
                }
                @if let Some(epoch) = &segment.epoch { br; span class="facts" { "epoch " code { (epoch) } } }
            }
            td class="nowrap" {
                "data " (segment.data.as_deref().unwrap_or("none"))
                br; span class="facts" { "handshake " (segment.handshake.as_deref().unwrap_or("none")) }
            }
            td class="nowrap" {
                @if let (Some(size), Some(buffers)) = (segment.bytes, segment.buffers) {
                    (bytes(size as f64)) br; span class="facts" { (counted(buffers, "buffer")) }
                }
            }
            td class="nowrap" { (now_of(figures)) }
            td class="nowrap" { (totals_of(figures)) }
        }
    }
}

fn now_of(figures: &Figures) -> Markup {
    let (Some(read), Some(written)) = (figures.read_per_second, figures.written_per_second) else {
        return html! { "—" };
    };
    html! {
        (speed(read + written))
        @if figures.history.len() > 1 {
            div class="plot spark" aria-hidden="true" { (PreEscaped(plot::spark(&figures.history, WINDOW.as_secs_f64()))) }
        }
    }
}

fn totals_of(figures: &Figures) -> Markup {
    let Some(transfers) = figures.transfers else { return html! { "—" } };
    html! {
        (bytes(figures.transfer_bytes.unwrap_or_default() as f64)) " in " (transfers)
        br; span class="facts" {
            (figures.transfer_failures.unwrap_or_default()) " failed, served " (figures.served_requests.unwrap_or_default())
            ", refused " (figures.refused_requests.unwrap_or_default())
        }
    }
}

fn state_of(segment: &SegmentView) -> Markup {
    let figures = &segment.figures;
    let (class, word) = match segment.state {
        State::NoDescriptor => ("warn", "no descriptor"),
        State::Unreadable => ("bad", "unreadable"),
        State::Described if figures.silent => ("bad", "does not answer"),
        State::Described if figures.seconds_since_answer.is_some() => ("good", "answers"),
        State::Described => ("", "registered"),
    };
    html! {
        strong class=(class) { (word) }
        @if let Some(up) = figures.uptime_seconds.filter(|_| !figures.silent) { ", up " (span(up.max(0.0) as u64)) }
        br; span class="facts" { "announced " (span(segment.seconds_since_announced)) " ago" }
        @if let Some(missing) = &figures.missing { br; span class="facts" { (missing) } }
    }
}

pub(super) fn links(cluster: &Cluster, filter: &str) -> Markup {
    let matching = |link: &&Link| has(&link.engine, filter) || has(&link.peer, filter);
    let all: Vec<&Link> = cluster.links.iter().filter(matching).collect();
    html! {
        section aria-labelledby="links-title" {
            h2 id="links-title" { "Busiest transfers" }
            div id="links" data-live {
                @if all.is_empty() { p { "No engine that gives figures has transferred anything" (of_those(filter)) "." } } @else {
                    (table("Engines and the peers they transfer to and from, the busiest first",
                        &["From", "To", "Path", "Now", "Since start", "Latency p50, p99", "Lanes", "Queued", "Retries", "Failed"],
                        html! { @for link in all.iter().take(LINKS) { (link_row(link)) } }))
                    (more(all.len(), LINKS, "pair"))
                }
            }
        }
    }
}

fn link_row(link: &Link) -> Markup {
    html! {
        tr {
            th scope="row" class="name" { (link.engine) }
            td class="name" { (link.peer) }
            td { (link.path.as_deref().unwrap_or("—")) }
            td class="nowrap" { @match link.bytes_per_second { Some(rate) => (speed(rate)), None => "—" } }
            td class="nowrap" { (bytes(link.bytes as f64)) " in " (link.transfers) }
            td class="nowrap" {
                @match (link.latency_p50_us, link.latency_p99_us) {
                    (Some(p50), Some(p99)) => { (latency(p50)) ", " (latency(p99)) },
                    _ => "—",
                }
            }
            td { (link.lanes) }
            td class="nowrap" { (bytes(link.queued_bytes as f64)) }
            td { (link.retries) }
            td { @if link.failures > 0 { strong class="bad" { (link.failures) } } @else { "0" } }
        }
    }
}

fn table(caption: &str, columns: &[&str], rows: Markup) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn more(all: usize, shown: usize, what: &str) -> Markup {
    html! { @if all > shown { p { "and " (counted(all - shown, &format!("more {what}"))) ": filter by name to see others" } } }
}

fn of_those(filter: &str) -> Markup {
    html! { @if !filter.is_empty() { " with “" (filter) "” in its name" } }
}

fn has(name: &str, filter: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(&filter.to_lowercase())
}
