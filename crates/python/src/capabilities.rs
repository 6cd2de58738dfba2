//! What this build can do, and what engines look like from outside, for the Python code on top.

use std::time::Duration;

use moonrail::Survey;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{core, errors};

/// Kind, name, and where it is not there why and what helps.
type Item = (&'static str, String, Option<(String, String)>);

/// Everything that this build knows of.
#[pyfunction]
pub(crate) fn capabilities() -> Vec<Item> {
    let items = moonrail::capabilities().items.into_iter();
    items
        .map(|item| (item.kind.as_str(), item.name, item.missing.map(|missing| (missing.why, missing.fix))))
        .collect()
}

/// What the engine called `peer` runs, serves and has registered. No engine is started for it.
#[pyfunction]
pub(crate) fn look<'py>(
    py: Python<'py>,
    peer: String,
    metadata: String,
    cluster_id: Option<String>,
    timeout: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let timeout = seconds(py, timeout)?;
    let seen =
        core::raising(py, move || Survey::new(&metadata, cluster_id.as_deref(), timeout)?.look(&peer))?;
    let dict = PyDict::new(py);
    dict.set_item("release", &seen.release)?;
    dict.set_item("moonrail", seen.side.engine.is_moonrail())?;
    dict.set_item("data_version", seen.side.engine.data_version())?;
    dict.set_item("serves", &seen.capabilities.serves)?;
    dict.set_item("lacks", &seen.capabilities.lacks)?;
    dict.set_item("buffers", &seen.buffers)?;
    dict.set_item("data_failure", &seen.data_failure)?;
    Ok(dict)
}

/// Whether the engine called `peer` answers; raises why not. No engine is started for it.
#[pyfunction]
pub(crate) fn probe(
    py: Python<'_>,
    peer: String,
    metadata: String,
    cluster_id: Option<String>,
    timeout: f64,
) -> PyResult<(f64, bool)> {
    let timeout = seconds(py, timeout)?;
    let report =
        core::raising(py, move || Survey::new(&metadata, cluster_id.as_deref(), timeout)?.probe(&peer))?;
    Ok((report.round_trip.as_secs_f64(), report.legacy))
}

fn seconds(py: Python<'_>, timeout: f64) -> PyResult<Duration> {
    core::duration(timeout, "timeout").map_err(|error| errors::exception(py, &error))
}
