//! The page. Every text goes through the template, which escapes it; only plots, made of figures, do not.

use maud::{Markup, PreEscaped, html};
use moonrail_reference::Frame;

use super::cluster::{Cluster, FailureView, Figures, Link, RatePoint, SegmentView, State};
use super::pairs::{KindView, PairView};
use super::plot;
use super::problems::{Level, Problem};
use super::text::{bytes, counted, latency, span, time_of_day};
use super::watch::WINDOW;

/// Rows of a table; the filter leads to the others.
const SEGMENTS: usize = 100;
const LINKS: usize = 20;
const FAILURES: usize = 50;

/// The whole page; with `filter`, the tables only have what has this text in a name.
pub(super) fn page(cluster: &Cluster, filter: &str) -> String {
    let serious = cluster.problems.iter().filter(|problem| problem.level == Level::Problem).count();
    let title = match serious {
        0 => "Moonrail cluster".to_owned(),
        some => format!("({some}) Moonrail cluster"),
    };
    let content = html! {
        h1 { "Cluster" }
        (head(cluster))
        (problems(&cluster.problems))
        (failures(cluster, filter))
        (rates(cluster))
        (matrix(cluster))
        (segments(cluster, filter))
        (links(cluster, filter))
        p class="facts" {
            "The same for programs: " a href="api/cluster" { "/api/cluster" } ". From a terminal: "
            code { "moonrail doctor --metadata URL" } " also asks each engine itself."
        }
    };
    let links = [("Moonrail cluster", "./"), ("Error reference", "errors")];
    Frame {
        title: &title,
        assets: "errors/",
        links: &links,
        styles: &["status.css"],
        scripts: &["status.js"],
        wide: true,
    }
    .page(&content)
}

fn head(cluster: &Cluster) -> Markup {
    let reporting = cluster.segments.iter().filter(|s| s.figures.seconds_since_answer.is_some()).count();
    let buffers =
        cluster.segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.bytes.unwrap_or_default()));
    html! {
        div class="head" {
            p id="summary" data-live {
                (counted(cluster.segments.len(), "segment")) ", " (bytes(buffers as f64)) " registered, figures from "
                (counted(reporting, "engine")) ". As of " (time_of_day(cluster.time_ms)) " UTC."
            }
            div class="controls" {
                a id="reload" class="button" href="" { "Reload" }
                button id="pause" type="button" hidden { "Pause updates" }
            }
            p id="connection" role="alert" {}
            p id="said" class="unseen" role="status" {}
        }
    }
}

fn problems(problems: &[Problem]) -> Markup {
    html! {
        section aria-labelledby="problems-title" {
            h2 id="problems-title" { "Problems" }
            div id="problems" data-live data-count=(problems.len()) {
                @if problems.is_empty() {
                    p class="fine" { strong { "None seen." } " Nothing that is registered here is known to be wrong." }
                } @else {
                    ul class="problems" { @for problem in problems { (one_problem(problem)) } }
                }
            }
        }
    }
}

fn one_problem(problem: &Problem) -> Markup {
    let (class, word) = match problem.level {
        Level::Problem => ("bad", "Problem"),
        Level::Warning => ("warn", "Warning"),
    };
    html! {
        li class=(class) {
            p { strong class="mark" { (word) } " " (problem.what) }
            @if !problem.concerns.is_empty() {
                p class="facts" {
                    (problem.concerns.join(", "))
                    @if problem.more > 0 { " and " (problem.more) " more" }
                }
            }
            p { strong { "Fix: " } (problem.fix)
                @if let Some(record) = &problem.record { " " a href=(record) { "More about this error" } }
            }
        }
    }
}

fn failures(cluster: &Cluster, filter: &str) -> Markup {
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
            td { (failure.engine) }
            td { (failure.peer.as_deref().unwrap_or("—")) }
            td { (failure.stage) @if let Some(op) = &failure.op { br; span class="facts" { (op) } } }
            td { @if failure.retry_safe { "safe" } @else { "not safe" } }
            td class="text" { (failure.message) }
        }
    }
}

fn rates(cluster: &Cluster) -> Markup {
    let line = |value: fn(&RatePoint) -> f64| -> plot::Line {
        cluster.rates.iter().map(|point| (point.seconds_ago, value(point))).collect()
    };
    let seconds = WINDOW.as_secs_f64();
    let moved = [line(|point| point.read_per_second), line(|point| point.written_per_second)];
    let failed = [line(|point| point.failures_per_second)];
    let now = cluster.rates.last().copied().filter(|point| point.seconds_ago < 15.0);
    let say =
        |value: fn(&RatePoint) -> f64| now.map_or("not known yet".to_owned(), |point| speed(value(&point)));
    let failing = now.map_or("not known yet".to_owned(), |point| per_second(point.failures_per_second));
    html! {
        section aria-labelledby="rates-title" {
            h2 id="rates-title" { "Rates" }
            div id="rates" class="plots" data-live {
                (figure(&plot::chart(&moved, seconds, speed), "Bytes moved, the last 5 minutes", html! {
                    span class="key first" {} "read: " strong { (say(|point| point.read_per_second)) } " "
                    span class="key second" {} "written: " strong { (say(|point| point.written_per_second)) }
                }))
                (figure(&plot::chart(&failed, seconds, per_second), "Failed transfers, the last 5 minutes", html! {
                    span class="key first" {} "failures: " strong { (failing) }
                }))
                @if now.is_none() {
                    p class="facts" {
                        "A rate needs two answers of an engine: it is there at the second look. Engines are asked only while somebody looks."
                    }
                }
            }
        }
    }
}

fn figure(svg: &str, name: &str, caption: Markup) -> Markup {
    html! {
        figure {
            figcaption { span class="name" { (name) } " " (caption) }
            div class="plot" role="img" aria-label=(name) { (PreEscaped(svg)) }
        }
    }
}

fn matrix(cluster: &Cluster) -> Markup {
    let rows = cluster.pairs.chunks(cluster.kinds.len().max(1));
    html! {
        section aria-labelledby="matrix-title" {
            h2 id="matrix-title" { "Who can talk to whom" }
            div id="matrix" data-live {
                @if cluster.kinds.is_empty() { p { "No segment is described." } } @else {
                    div class="scroll" tabindex="0" role="region" aria-label="Capability matrix" {
                        table class="matrix" {
                            caption { "Rows start transfers, columns are the targets. Engines that behave alike share a letter." }
                            thead { tr {
                                th scope="col" { "Initiator" }
                                @for kind in &cluster.kinds { th scope="col" { "to " (kind.letter) } }
                            } }
                            tbody { @for (kind, row) in cluster.kinds.iter().zip(rows) { tr {
                                th scope="row" { (kind_name(kind)) }
                                @for pair in row { (cell(pair)) }
                            } } }
                        }
                    }
                    @if cluster.more_kinds > 0 { p { "and " (counted(cluster.more_kinds, "more kind")) } }
                    p class="facts" {
                        "shm: straight copies on one host; rail: Moonrail's own protocol; v2, v1: Mooncake's. LIES: a failed write "
                        "is reported as success. LOSES: most of a batch never arrives. Told from descriptors and default settings."
                    }
                }
            }
        }
    }
}

fn kind_name(kind: &KindView) -> Markup {
    html! {
        strong { (kind.letter) } " " (kind.what)
        div class="facts" {
            (counted(kind.engines, "engine")) ": " (kind.names.join(", "))
            @if kind.engines > kind.names.len() { " and " (kind.engines - kind.names.len()) " more" }
        }
    }
}

fn cell(pair: &PairView) -> Markup {
    let (class, mark) = match pair.level {
        "ok" => ("good", "✓ "),
        "note" => ("", "✓ "),
        "lies" => ("warn", "! "),
        "broken" => ("bad", "✗ "),
        _ => return html! { td { "—" } },
    };
    html! {
        td class=(class) {
            @for (index, way) in pair.ways.iter().enumerate() {
                @if index > 0 { br; }
                span aria-hidden="true" { (mark) } (way.says)
                @if pair.ways.len() > 1 { span class="facts" { @if way.one_host { " on one host" } @else { " between hosts" } } }
                @if !way.problems.is_empty() { br; span class="facts" { (way.problems.join(", ")) } }
            }
        }
    }
}

fn segments(cluster: &Cluster, filter: &str) -> Markup {
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
                        &["Name", "Release", "Addresses", "Memory", "Announced", "Now", "Since start", "State"],
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
            th scope="row" { (segment.name) @if segment.space != "mooncake/" { br; span class="facts" { (segment.space) } } }
            td {
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
            td class="nowrap" { (span(segment.seconds_since_announced)) " ago" }
            td class="nowrap" { (now_of(figures)) }
            td class="nowrap" { (totals_of(figures)) }
            td class="text" { (state_of(segment)) }
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
        @if let Some(missing) = &figures.missing { br; span class="facts" { (missing) } }
    }
}

fn links(cluster: &Cluster, filter: &str) -> Markup {
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
            th scope="row" { (link.engine) }
            td { (link.peer) }
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

fn speed(rate: f64) -> String {
    format!("{}/s", bytes(rate))
}

fn per_second(rate: f64) -> String {
    if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") }
}
