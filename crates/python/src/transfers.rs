//! The transfers of `TransferEngine`: single, batched, in the background.

use moonrail::{Code, Entry, Error, Opcode};
use pyo3::prelude::*;

use crate::arguments::{Numbers, Text, Unsigned, entries, invalid};
use crate::drop_in::{TransferEngine, general};
use crate::opcode::{TransferNotify, TransferOpcode};
use crate::session;

const PEER: &str = "target_hostname";

#[pymethods]
impl TransferEngine {
    /// Moves length bytes from local address buffer to peer_buffer_address at the peer. Returns 0 once the peer has
    /// them, else -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint = ""))]
    fn transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffer: Unsigned,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        self.one(
            py,
            "transfer_sync_write",
            Opcode::Write,
            target_hostname,
            [buffer, peer_buffer_address, length],
        )
    }

    /// Moves length bytes from peer_buffer_address at the peer to local address buffer. Returns 0 once they are here,
    /// else -1.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint = ""))]
    fn transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffer: Unsigned,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        self.one(
            py,
            "transfer_sync_read",
            Opcode::Read,
            target_hostname,
            [buffer, peer_buffer_address, length],
        )
    }

    /// transfer_sync_read or _write by opcode; notify is delivered to the peer once the bytes are moved.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, opcode, notify = None, transport_hint = ""))]
    #[expect(clippy::too_many_arguments, reason = "the signature is given")]
    fn transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffer: Unsigned,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        opcode: &Bound<'_, TransferOpcode>,
        notify: Option<&Bound<'_, TransferNotify>>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        let entry = single([buffer, peer_buffer_address, length]);
        let notify = notify.map(|notify| notify.get().notify());
        let request =
            session::request(target_hostname.utf8(PEER), opcode.get().opcode(), Ok(vec![entry]), notify);
        Ok(self.number("transfer_sync", self.session.transfer(py, request)?, general))
    }

    /// Writes any number of ranges: buffers[i] to peer_buffer_addresses[i], lengths[i] bytes. Returns 0 once the peer has
    /// all, else -1.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint = ""))]
    fn batch_transfer_sync_write(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        self.many(
            py,
            "batch_transfer_sync_write",
            Opcode::Write,
            target_hostname,
            [buffers, peer_buffer_addresses, lengths],
        )
    }

    /// Reads any number of ranges: peer_buffer_addresses[i] to buffers[i], lengths[i] bytes. Returns 0 once all are here,
    /// else -1.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint = ""))]
    fn batch_transfer_sync_read(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        self.many(
            py,
            "batch_transfer_sync_read",
            Opcode::Read,
            target_hostname,
            [buffers, peer_buffer_addresses, lengths],
        )
    }

    /// batch_transfer_sync_read or _write by opcode; notify is delivered to the peer once all bytes are moved. Empty
    /// lists with a notify give -1.
    #[pyo3(signature = (
        target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify = None, transport_hint = ""
    ))]
    #[expect(clippy::too_many_arguments, reason = "the signature is given")]
    fn batch_transfer_sync(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        opcode: &Bound<'_, TransferOpcode>,
        notify: Option<&Bound<'_, TransferNotify>>,
        transport_hint: &str,
    ) -> PyResult<i32> {
        let _ = transport_hint;
        let mut entries = entries(&buffers, &peer_buffer_addresses, &lengths)?;
        if notify.is_some() && entries.as_ref().is_ok_and(Vec::is_empty) {
            let message =
                "a notification goes with a transfer, and the lists are empty; give it one of length 0";
            entries = Err(invalid(Code::InvalidArgument, message));
        }
        let notify = notify.map(|notify| notify.get().notify());
        let request = session::request(target_hostname.utf8(PEER), opcode.get().opcode(), entries, notify);
        Ok(self.number("batch_transfer_sync", self.session.transfer(py, request)?, general))
    }

    /// Starts batch_transfer_sync_write in the background. Returns its id, 0 on failure.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint = ""))]
    fn batch_transfer_async_write(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        self.begin(
            py,
            "batch_transfer_async_write",
            Ok(Opcode::Write),
            target_hostname,
            [buffers, peer_buffer_addresses, lengths],
        )
    }

    /// Starts batch_transfer_sync_read in the background. Returns its id, 0 on failure.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint = ""))]
    fn batch_transfer_async_read(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        self.begin(
            py,
            "batch_transfer_async_read",
            Ok(Opcode::Read),
            target_hostname,
            [buffers, peer_buffer_addresses, lengths],
        )
    }

    /// Starts batch_transfer_sync in the background. Returns its id, 0 on failure.
    #[pyo3(signature = (target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint = ""))]
    #[expect(clippy::too_many_arguments, reason = "the signature is given")]
    fn batch_transfer_async(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffers: Numbers<'_>,
        peer_buffer_addresses: Numbers<'_>,
        lengths: Numbers<'_>,
        opcode: &Bound<'_, TransferOpcode>,
        transport_hint: &str,
    ) -> PyResult<u64> {
        let _ = transport_hint;
        let opcode = opcode.get().opcode();
        self.begin(
            py,
            "batch_transfer_async",
            opcode,
            target_hostname,
            [buffers, peer_buffer_addresses, lengths],
        )
    }

    /// Waits for all batches with these ids. Returns 0 when all are done, -1 when one failed or is unknown. Each
    /// result is handed out here once; transfer_check_status goes on to tell it.
    #[pyo3(signature = (batch_ids, /))]
    fn get_batch_transfer_status(&self, py: Python<'_>, batch_ids: Numbers<'_>) -> PyResult<i32> {
        let ids = batch_ids.to_vec("batch_ids")?;
        Ok(self.number("get_batch_transfer_status", self.session.wait_all(py, &ids)?, general))
    }

    /// Starts transfer_sync_write in the background. Returns its id for transfer_check_status, 0 on failure.
    #[pyo3(signature = (target_hostname, buffer, peer_buffer_address, length, transport_hint = ""))]
    fn transfer_submit_write(
        &self,
        py: Python<'_>,
        target_hostname: Text<'_>,
        buffer: Unsigned,
        peer_buffer_address: Unsigned,
        length: Unsigned,
        transport_hint: &str,
    ) -> u64 {
        let _ = transport_hint;
        let entry = single([buffer, peer_buffer_address, length]);
        let request = session::request(target_hostname.utf8(PEER), Ok(Opcode::Write), Ok(vec![entry]), None);
        self.value("transfer_submit_write", "0", self.session.submit(py, request), 0)
    }

    /// How a batch is doing: 1 done, 0 running, -1 failed or unknown, -2 timed out. It speaks for the whole batch,
    /// and gives the same final answer as often as it is asked, for the last 65,536 that ended.
    #[pyo3(signature = (batch_id, /))]
    fn transfer_check_status(&self, batch_id: Unsigned) -> i32 {
        match self.session.batch(batch_id.0).map(|batch| batch.completion.poll()) {
            Ok(None) => 0,
            Ok(Some(Ok(()))) => {
                self.session.failures.clear();
                1
            }
            Ok(Some(Err(error))) | Err(error) => self.number("transfer_check_status", Err(error), |error| {
                let late = matches!(error.code(), Code::DeadlineExceeded | Code::PeerTimeout);
                if late { -2 } else { -1 }
            }),
        }
    }
}

impl TransferEngine {
    fn one(
        &self,
        py: Python<'_>,
        method: &str,
        opcode: Opcode,
        peer: Text<'_>,
        entry: [Unsigned; 3],
    ) -> PyResult<i32> {
        let entry = single(entry);
        if let Some(outcome) = peer.as_str().and_then(|peer| self.session.copy_at_once(peer, opcode, entry)) {
            return Ok(self.number(method, outcome, general));
        }
        let request = session::request(peer.utf8(PEER), Ok(opcode), Ok(vec![entry]), None);
        Ok(self.number(method, self.session.transfer(py, request)?, general))
    }

    fn many(
        &self,
        py: Python<'_>,
        method: &str,
        opcode: Opcode,
        peer: Text<'_>,
        lists: [Numbers<'_>; 3],
    ) -> PyResult<i32> {
        let [buffers, peers, lengths] = &lists;
        let request = session::request(peer.utf8(PEER), Ok(opcode), entries(buffers, peers, lengths)?, None);
        Ok(self.number(method, self.session.transfer(py, request)?, general))
    }

    fn begin(
        &self,
        py: Python<'_>,
        method: &str,
        opcode: Result<Opcode, Error>,
        peer: Text<'_>,
        lists: [Numbers<'_>; 3],
    ) -> PyResult<u64> {
        let [buffers, peers, lengths] = &lists;
        let request = session::request(peer.utf8(PEER), opcode, entries(buffers, peers, lengths)?, None);
        Ok(self.value(method, "0", self.session.submit(py, request), 0))
    }
}

fn single([local, remote, len]: [Unsigned; 3]) -> Entry {
    Entry { local: local.0, remote: remote.0, len: len.0 }
}
