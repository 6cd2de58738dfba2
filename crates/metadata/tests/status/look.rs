//! A metadata server with segments, and looking at it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use moonrail_metadata::{MetadataServer, ServerLimits};
use moonrail_wire::segment::{Extension, RailOffer, SegmentDescriptor};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::common::{connect, descriptor};

pub(crate) struct Cluster {
    server: MetadataServer,
}

pub(crate) struct Got {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let server = MetadataServer::bind("127.0.0.1:0".parse().unwrap(), ServerLimits::default()).unwrap();
        Cluster { server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub(crate) fn get(&self, path: &str, more: &str) -> Got {
        get(self.address(), path, more)
    }

    pub(crate) fn page(&self, query: &str) -> Got {
        let page = self.get(&format!("/?{query}"), "Accept: text/html,application/xhtml+xml\r\n");
        assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
        page
    }

    /// What programs get, which always has the shape that its schema says.
    pub(crate) fn json(&self) -> Value {
        let got = self.get("/api/cluster", "");
        assert_eq!((got.status, got.field("content-type")), (200, Some("application/json")));
        let shown = serde_json::from_str(&got.body).unwrap();
        let schema = serde_json::from_str(&self.get("/api/cluster/schema", "").body).unwrap();
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("http://x/schema.json", schema).unwrap();
        let index = compiler.compile("http://x/schema.json", &mut schemas).unwrap();
        if let Err(error) = schemas.validate(&shown, index) {
            panic!("{error:#}: {shown}");
        }
        shown
    }

    pub(crate) fn register_moonrail(&self, name: &str, epoch: u64, metrics: Option<&str>) {
        self.register_at(name, "127.0.0.1", epoch, metrics);
    }

    pub(crate) fn register_at(&self, name: &str, host: &str, epoch: u64, metrics: Option<&str>) {
        self.register_over(&mut connect(self.address()), name, host, epoch, metrics);
    }

    pub(crate) fn register_over(
        &self,
        stream: &mut TcpStream,
        name: &str,
        host: &str,
        epoch: u64,
        metrics: Option<&str>,
    ) {
        let extension = Extension {
            release: "0.1.0".to_owned(),
            epoch,
            metrics: metrics.map(str::to_owned),
            names: Vec::new(),
            rail: Some(RailOffer { features: 1, max: 1, min: 1 }),
            same_host: None,
            refuses_v1: false,
        };
        let of = descriptor(name, 16000);
        let described =
            SegmentDescriptor { moonrail: Some(extension), tcp_data_host: Some(host.to_owned()), ..of };
        let meta = format!(r#"{{"ip_or_host_name":"{host}","rpc_port":15000}}"#);
        put(stream, &format!("mooncake/rpc_meta/{name}"), meta.as_bytes());
        put(stream, &format!("mooncake/ram/{name}"), described.to_json().trim_ascii_end());
    }

    /// As releases up to 0.3.11 (version 1) or 0.3.12 write it.
    pub(crate) fn register_mooncake(&self, name: &str, version: u32) {
        let of = descriptor(name, 16000);
        let described = SegmentDescriptor {
            tcp_proto_version: version,
            tcp_data_host: None,
            rdma_server_name: None,
            ..of
        };
        self.put(&format!("mooncake/rpc_meta/{name}"), r#"{"ip_or_host_name":"127.0.0.1","rpc_port":15003}"#);
        self.put(&format!("mooncake/ram/{name}"), std::str::from_utf8(&described.to_json()).unwrap());
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        put(&mut connect(self.address()), key, value.as_bytes());
    }
}

fn put(stream: &mut TcpStream, key: &str, value: &[u8]) {
    let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
    let mut request =
        format!("PUT /metadata?key={key} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", value.len())
            .into_bytes();
    request.extend_from_slice(value);
    stream.write_all(&request).unwrap();
    let mut answer = [0; 1024];
    let count = stream.read(&mut answer).unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..count]));
}

pub(crate) fn get(at: SocketAddr, path: &str, more: &str) -> Got {
    let mut stream = connect(at);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let text = String::from_utf8(all).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Got { status, head: head.to_owned(), body: body.to_owned() }
}
