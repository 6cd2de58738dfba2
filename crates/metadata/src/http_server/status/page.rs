//! The page. Every text goes through the template, which escapes it; only plots, made of figures, do not.

mod matrix;
mod tables;

use maud::{Markup, PreEscaped, html};
use moonrail_reference::Frame;

use super::cluster::{Cluster, RatePoint};
use super::plot;
use super::problems::{Level, Problem};
use super::text::{byte_unit, bytes, counted, speed, time_of_day};
use super::watch::WINDOW;
use matrix::matrix;
use tables::{failures, links, segments};

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
        (problems(&cluster.problems, cluster.segments.is_empty()))
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
                (counted(reporting, "engine"))
                @if reporting < cluster.segments.len() { "; what the others start is not seen here" }
                ". As of " (time_of_day(cluster.time_ms)) " UTC."
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

fn problems(problems: &[Problem], empty: bool) -> Markup {
    html! {
        section aria-labelledby="problems-title" {
            h2 id="problems-title" { "Problems" }
            div id="problems" data-live data-count=(problems.len()) {
                @if problems.is_empty() {
                    p class="fine" {
                        strong { "None seen." }
                        @if empty { " No engine is registered here yet." } @else { " Nothing that is registered here is known to be wrong." }
                    }
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
            p { strong class="mark" { (word) ":" } " " (problem.what) }
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

fn rates(cluster: &Cluster) -> Markup {
    let line = |value: fn(&RatePoint) -> f64| -> plot::Line {
        cluster.rates.iter().map(|point| (point.seconds_ago, value(point))).collect()
    };
    // A short time is not drawn into the corner of a long one.
    let (seconds, words) = match cluster.rates.first() {
        Some(first) if first.seconds_ago > MINUTE => (WINDOW.as_secs_f64(), "the last 5 minutes"),
        _ => (MINUTE, "the last minute"),
    };
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
                (figure(&plot::chart(&moved, seconds, byte_unit), &format!("Bytes moved, {words}"), html! {
                    span class="key first" {} "read: " strong { (say(|point| point.read_per_second)) } " "
                    span class="key second" {} "written: " strong { (say(|point| point.written_per_second)) }
                }))
                (figure(&plot::chart(&failed, seconds, |_| (1.0, "/s")), &format!("Failed transfers, {words}"), html! {
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

const MINUTE: f64 = 60.0;

fn figure(svg: &str, name: &str, caption: Markup) -> Markup {
    html! {
        figure {
            figcaption { span class="title" { (name) } " " (caption) }
            div class="plot" role="img" aria-label=(name) { (PreEscaped(svg)) }
        }
    }
}

fn per_second(rate: f64) -> String {
    if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") }
}
