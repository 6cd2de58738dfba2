//! A Mooncake initiator: one request after the other, on one connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use moonrail_wire::data::{DataVersion, Op, RequestHeader, STATUS_LEN, STATUS_OK, decode_status};

use super::{refused, reset};
use crate::orders::{Refusal, Said};

/// Memory, and transfers from and into it, each on a thread of its own.
pub(crate) struct Client {
    pub memory: Arc<Mutex<Vec<u8>>>,
    say: Sender<Said>,
    said: Receiver<Said>,
}

/// One transfer.
pub(crate) struct Job {
    pub transfer: u8,
    pub version: DataVersion,
    pub to: SocketAddr,
    pub write: bool,
    /// Offset in `memory`, remote address, length.
    pub pieces: Vec<(usize, u64, usize)>,
    /// Longest time without a byte.
    pub patience: Duration,
}

impl Client {
    pub(crate) fn new(len: usize) -> Self {
        let (say, said) = channel();
        Self { memory: Arc::new(Mutex::new(vec![0; len])), say, said }
    }

    pub(crate) fn hear(&self, patience: Duration) -> Option<Said> {
        self.said.recv_timeout(patience).ok()
    }

    pub(crate) fn start(&self, job: Job) {
        let (memory, say) = (Arc::clone(&self.memory), self.say.clone());
        thread::spawn(move || {
            let began = Instant::now();
            let outcome = job.run(&memory).map_err(|error| Refusal {
                code: "MOONCAKE".to_owned(),
                stage: "transfer".to_owned(),
                applied: 0,
                text: error.to_string(),
            });
            let micros = began.elapsed().as_micros() as u64;
            let _ = say.send(Said::Done { transfer: job.transfer, outcome, micros });
        });
    }
}

impl Job {
    fn run(&self, memory: &Mutex<Vec<u8>>) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.to, self.patience)?;
        // However this ends: what is on its way then must not arrive.
        reset(&stream);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        for &(local, remote, len) in self.pieces.iter().filter(|(.., len)| *len > 0) {
            if self.write {
                let bytes = memory.lock().expect("no holder panics")[local..local + len].to_vec();
                stream.write_all(&self.header(Op::Write, remote, len))?;
                stream.write_all(&bytes)?;
                self.confirm(&mut stream, remote, len)?;
            } else {
                stream.write_all(&self.header(Op::Read, remote, len))?;
                if self.version == DataVersion::V2 {
                    status(&mut stream)?;
                }
                let mut bytes = vec![0; len];
                stream.read_exact(&mut bytes)?;
                memory.lock().expect("no holder panics")[local..local + len].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    fn header(&self, op: Op, addr: u64, len: usize) -> Vec<u8> {
        RequestHeader { size: len as u64, addr, op, version: self.version }.encode().to_vec()
    }

    /// In v1 by a read of the last byte, as the server works in order.
    fn confirm(&self, stream: &mut TcpStream, remote: u64, len: usize) -> io::Result<()> {
        if self.version == DataVersion::V2 {
            return status(stream);
        }
        stream.write_all(&self.header(Op::Read, remote + len as u64 - 1, 1))?;
        stream.read_exact(&mut [0])
    }
}

fn status(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; STATUS_LEN];
    stream.read_exact(&mut bytes)?;
    match decode_status(&bytes) {
        Ok(STATUS_OK) => Ok(()),
        _ => Err(refused()),
    }
}
