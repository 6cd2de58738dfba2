//! A Mooncake target: a handshake port that tells of one buffer, and a data port.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use moonrail_metadata::{HandshakeHandler, HandshakeServer, Limits};
use moonrail_sys::poll::{Ready, wait_readable};
use moonrail_sys::socket;
use moonrail_wire::data::{
    DataVersion, HEADER_LEN, Op, RequestHeader, STATUS_OK, STATUS_REJECTED, encode_status,
};
use moonrail_wire::handshake::Notify;
use moonrail_wire::segment::{Buffer, PROTOCOL_TCP, SegmentDescriptor};

use super::{refused, reset};
use crate::orders::MARGIN;
use crate::plan::Kind;

/// The address of the memory's first byte, made up.
pub(crate) const BASE: u64 = 0x10_0000_0000;

pub(crate) struct Server {
    pub memory: Arc<Mutex<Vec<u8>>>,
    pub data_port: u16,
    listener: Arc<TcpListener>,
    connections: Arc<Mutex<Vec<Arc<TcpStream>>>>,
    busy: Arc<AtomicUsize>,
    _handshake: HandshakeServer,
}

impl Server {
    /// Serves at `listen`, known to peers as `host:port`.
    pub(crate) fn start(kind: Kind, host: IpAddr, port: u16, listen: IpAddr, len: usize) -> io::Result<Self> {
        let data = TcpListener::bind((listen, 0))?;
        let data_port = data.local_addr()?.port();
        let handshake = socket::listen(SocketAddr::new(listen, port), 64)?;
        let name = SocketAddr::new(host, port).to_string();
        let buffer = Buffer { addr: BASE + MARGIN, length: len as u64 - 2 * MARGIN, name: name.clone() };
        let descriptor = SegmentDescriptor {
            name,
            protocol: PROTOCOL_TCP.to_owned(),
            tcp_data_port: data_port,
            tcp_data_host: (kind == Kind::V2).then(|| host.to_string()),
            tcp_proto_version: if kind == Kind::V2 { 2 } else { 1 },
            buffers: vec![buffer],
            ..SegmentDescriptor::default()
        };
        let teller = Arc::new(Teller(descriptor.to_json().into()));
        let handshake = HandshakeServer::start(handshake, teller, Limits::default())?;
        let serving = Serving {
            kind,
            memory: Arc::new(Mutex::new(vec![0; len])),
            connections: Arc::default(),
            busy: Arc::default(),
        };
        let server = Self {
            memory: Arc::clone(&serving.memory),
            data_port,
            listener: Arc::new(data),
            connections: Arc::clone(&serving.connections),
            busy: Arc::clone(&serving.busy),
            _handshake: handshake,
        };
        let listener = Arc::clone(&server.listener);
        thread::spawn(move || serving.serve_all(&listener));
        Ok(server)
    }

    /// Whether it may still store something that has been sent: also where a thread of its own has not looked yet.
    pub(crate) fn busy(&self) -> bool {
        // In this order: who takes up any of it counts as busy before.
        let waiting = matches!(wait_readable(&*self.listener, Some(Duration::ZERO)), Ok(Ready::Ready(_)));
        let unread = {
            let connections = self.connections.lock().expect("no holder panics");
            connections.iter().any(|stream| socket::is_dead_or_dirty(&**stream))
        };
        waiting || unread || self.busy.load(Ordering::Acquire) > 0
    }
}

struct Teller(Arc<[u8]>);

impl HandshakeHandler for Teller {
    fn descriptor(&self) -> Option<Arc<[u8]>> {
        Some(Arc::clone(&self.0))
    }

    fn notify(&self, _: Notify) -> Result<(), String> {
        Ok(())
    }

    fn refuse(&self, _: Option<&SegmentDescriptor>) -> Option<String> {
        None
    }
}

#[derive(Clone)]
struct Serving {
    kind: Kind,
    memory: Arc<Mutex<Vec<u8>>>,
    connections: Arc<Mutex<Vec<Arc<TcpStream>>>>,
    busy: Arc<AtomicUsize>,
}

/// Counts a connection as busy while it lives.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Serving {
    fn serve_all(&self, listener: &TcpListener) {
        while wait_readable(listener, None).is_ok() {
            self.busy.fetch_add(1, Ordering::AcqRel);
            let _busy = Busy(&self.busy);
            let Ok((stream, _)) = listener.accept() else { return };
            let (serving, stream) = (self.clone(), Arc::new(stream));
            self.connections.lock().expect("no holder panics").push(Arc::clone(&stream));
            thread::spawn(move || {
                let _ = serving.serve(&stream);
                let mut connections = serving.connections.lock().expect("no holder panics");
                connections.retain(|other| !Arc::ptr_eq(other, &stream));
            });
        }
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let mut header = [0; HEADER_LEN];
            wait_readable(stream, None)?;
            self.busy.fetch_add(1, Ordering::AcqRel);
            let busy = Busy(&self.busy);
            unless_reset(stream)?;
            stream.read_exact(&mut header)?;
            self.answer(stream, RequestHeader::decode(&header))?;
            drop(busy);
            if self.kind == Kind::V1Closes {
                return Ok(());
            }
        }
    }

    fn answer(&self, mut stream: &TcpStream, request: RequestHeader) -> io::Result<()> {
        let v2 = request.version == DataVersion::V2;
        let memory_len = self.memory.lock().expect("no holder panics").len() as u64;
        let offset = request.addr.checked_sub(BASE).filter(|at| {
            request.size > 0 && at.checked_add(request.size).is_some_and(|end| end <= memory_len)
        });
        let Some(mut at) = offset.map(|at| at as usize) else {
            if v2 {
                stream.write_all(&encode_status(STATUS_REJECTED))?;
            } else {
                reset(stream);
            }
            return Err(refused());
        };
        let mut left = request.size as usize;
        let mut chunk = vec![0; left.min(64 << 10)];
        if v2 && request.op == Op::Read {
            stream.write_all(&encode_status(STATUS_OK))?;
        }
        while left > 0 {
            let some = left.min(chunk.len());
            if request.op == Op::Read {
                chunk[..some].copy_from_slice(&self.memory.lock().expect("no holder panics")[at..at + some]);
                stream.write_all(&chunk[..some])?;
                (at, left) = (at + some, left - some);
            } else {
                unless_reset(stream)?;
                let got = stream.read(&mut chunk[..some])?;
                if got == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.memory.lock().expect("no holder panics")[at..at + got].copy_from_slice(&chunk[..got]);
                (at, left) = (at + got, left - got);
            }
        }
        if v2 && request.op == Op::Write {
            stream.write_all(&encode_status(STATUS_OK))?;
        }
        Ok(())
    }
}

/// What a client that gave up has left in the socket is not stored. (A genuine server would; nothing is promised of it.)
fn unless_reset(stream: &TcpStream) -> io::Result<()> {
    socket::take_error(stream)?.map_or(Ok(()), Err)
}
