//! Who can talk to whom, as a table.

use maud::{Markup, html};

use super::super::cluster::Cluster;
use super::super::pairs::{KindView, PairView};
use super::super::text::counted;

pub(super) fn matrix(cluster: &Cluster) -> Markup {
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
                @if pair.ways.len() > 1 { span class="facts" { @if way.one_host { " on one host" } @else { " otherwise" } } }
                @let others = way.problems.iter().filter(|problem| !way.says.contains(**problem));
                @let others = others.copied().collect::<Vec<_>>().join(", ");
                @if !others.is_empty() { br; span class="facts" { (others) } }
            }
        }
    }
}
