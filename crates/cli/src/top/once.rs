//! The same figures once, as a table or for programs.

use std::thread;
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use super::columns::{Align, Column, ENGINES, TRANSFERS, span};
use super::endpoint::Endpoint;
use super::fetch::{Asker, Listing};
use super::model::{FailureRow, Model};
use super::{Args, report::Report};
use crate::failure::{Failure, UNREACHABLE};
use crate::output::Output;

/// Asks every engine twice, one interval apart, so that there are rates.
pub(crate) fn run(args: &Args, out: &mut Output) -> Result<i32, Failure> {
    let mut model = Model::new(&args.engines);
    let mut all = args.engines.clone();
    if let Some(metadata) = &args.metadata {
        let listed = Listing::new(metadata)?
            .list()
            .map_err(|error| Failure::engine("cannot list the segments", &error))?;
        model.announce(&listed);
        all.extend(listed);
        all.sort();
        all.dedup();
    }
    let asker = Asker::new();
    for again in [true, false] {
        for (at, outcome) in ask_all(&asker, &all) {
            model.take(&at, outcome, Instant::now());
        }
        if again {
            thread::sleep(args.interval);
        }
    }
    print(args, &model, out)
}

fn ask_all(asker: &Asker, all: &[Endpoint]) -> Vec<(Endpoint, Result<Report, String>)> {
    thread::scope(|scope| {
        let asks: Vec<_> = all.iter().map(|at| (at, scope.spawn(|| asker.ask(at)))).collect();
        let join = |ask: thread::ScopedJoinHandle<'_, _>| {
            ask.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asks.into_iter().map(|(at, ask)| (at.clone(), join(ask))).collect()
    })
}

fn print(args: &Args, model: &Model, out: &mut Output) -> Result<i32, Failure> {
    let engines = model.engines(Instant::now());
    let rows = args.choice().apply(model.rows());
    let failures = model.failures();
    let code = if engines.iter().any(|row| row.unreachable.is_some()) { UNREACHABLE } else { 0 };
    if args.json {
        out.json(&json!({ "engines": engines, "transfers": rows, "failures": failures }))?;
        return Ok(code);
    }
    out.line(table(ENGINES, &engines).trim_fmt())?;
    if !rows.is_empty() {
        out.line("")?;
        out.line(table(TRANSFERS, &rows).trim_fmt())?;
    }
    if !failures.is_empty() {
        out.line("")?;
        failures.iter().try_for_each(|failure| out.line(line(failure)))?;
    }
    Ok(code)
}

fn table<R>(columns: &[Column<R>], rows: &[R]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_row(columns.iter().map(|column| column.title.to_owned()));
    for row in rows {
        table.add_row(columns.iter().map(|column| (column.cell)(row)));
    }
    for (index, column) in columns.iter().enumerate() {
        if column.align == Align::Right
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn line(failure: &FailureRow) -> String {
    let peer = failure.peer.as_deref().unwrap_or("-");
    let ago = span(failure.seconds_ago as f64);
    let FailureRow { code, engine, stage, message, explain, .. } = failure;
    format!("{ago} ago  {code}  {engine} to {peer}, {stage}: {message} ({explain})")
}
