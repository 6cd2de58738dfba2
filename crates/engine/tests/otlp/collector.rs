//! A collector: OTLP over HTTP, protobuf decoded.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// A span, and whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) service: String,
    pub(crate) span: Span,
}

pub(crate) struct Collector {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Taken>>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (over, taken) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Taken>>>::default());
        let (ending, all) = (Arc::clone(&over), Arc::clone(&taken));
        let thread = std::thread::spawn(move || {
            let mut clients = Vec::new();
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    break;
                }
                let (stream, all) = (stream.unwrap(), Arc::clone(&all));
                clients.push(std::thread::spawn(move || serve(stream, &all)));
            }
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        Self { address, over, taken, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that came. Engines have sent their last when they have ended.
    pub(crate) fn spans(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

/// The requests of one connection.
fn serve(stream: TcpStream, all: &Mutex<Vec<Taken>>) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader) {
        let export = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        for resource in export.resource_spans {
            let service = value(&resource.resource.unwrap().attributes, "service.name");
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            all.lock().unwrap().extend(spans.map(|span| Taken { service: service.clone(), span }));
        }
        let answer = ExportTraceServiceResponse::default().encode_to_vec();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        reader.get_mut().write_all(&[head.as_bytes(), &answer].concat()).unwrap();
    }
}

/// The body of the next request; `None` once the client is gone.
fn request(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    assert_eq!(line.trim_end(), "POST /v1/traces HTTP/1.1");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "content-type" => assert_eq!(value, "application/x-protobuf"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some(body)
}

/// The value of a span's attribute as text; empty where it has none.
pub(crate) fn attribute(span: &Span, name: &str) -> String {
    value(&span.attributes, name)
}

fn value(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        _ => String::new(),
    }
}
