//! OTLP: the messages, and how they reach a collector over HTTP.

use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Message};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use outboard_control::trace::{Span, Value};

/// A collector of traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    path: String,
}

/// Why an address of a collector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a collector that can be reached: write http://HOST:PORT, as for OTLP over HTTP (port 4318); TLS is a local collector's part"
)]
pub struct CollectorError(String);

/// The port of OTLP over HTTP, and the path of traces.
const PORT: u16 = 4318;
const PATH: &str = "/v1/traces";

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Collector, CollectorError> {
        let wrong = || CollectorError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() {
            return Err(wrong());
        }
        let path = if uri.path() == "/" { PATH } else { uri.path() };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Collector { host, port: uri.port_u16().unwrap_or(PORT), path: path.to_owned() })
    }
}

/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Batches that go together.
const TOGETHER: usize = 64;
/// The part of an answer that is read.
const LONGEST_ANSWER: usize = 64 << 10;

fn attribute(key: &str, value: AnyKind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Spans as a worker sends them.
pub(super) fn spans(trace: u128, worker: u32, spans: Vec<Span>) -> ResourceSpans {
    let told = |span: Span| Message {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        parent_span_id: if span.parent == 0 {
            Vec::new()
        } else {
            span.parent.to_be_bytes().to_vec()
        },
        name: span.name,
        kind: if span.parent == 0 { SpanKind::Server } else { SpanKind::Internal } as i32,
        start_time_unix_nano: span.begun,
        end_time_unix_nano: span.ended.max(span.begun),
        attributes: span
            .attributes
            .into_iter()
            .map(|(name, value)| attribute(&name, any(value)))
            .collect(),
        ..Message::default()
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let resource = Resource {
        attributes: vec![
            attribute("service.name", AnyKind::StringValue("outboard".to_owned())),
            attribute(
                "service.version",
                AnyKind::StringValue(env!("CARGO_PKG_VERSION").to_owned()),
            ),
            attribute("host.name", AnyKind::StringValue(host)),
            attribute("process.pid", AnyKind::IntValue(worker.into())),
        ],
        ..Resource::default()
    };
    let scope =
        InstrumentationScope { name: "outboard".to_owned(), ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(told).collect(),
        ..ScopeSpans::default()
    }];
    ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }
}

fn any(value: Value) -> AnyKind {
    match value {
        Value::Text(text) => AnyKind::StringValue(text),
        Value::Number(number) => AnyKind::IntValue(i64::try_from(number).unwrap_or(i64::MAX)),
    }
}

/// The same in JSON, as collectors read it from files.
pub(super) fn json(resource_spans: Vec<ResourceSpans>) -> serde_json::Value {
    // Numbers and texts can always be written.
    serde_json::to_value(ExportTraceServiceRequest { resource_spans }).unwrap_or_default()
}

/// Sends batches as they come, until there are no more.
pub(super) async fn send_all(collector: &Collector, mut batches: mpsc::Receiver<ResourceSpans>) {
    let mut fails = false;
    while let Some(first) = batches.recv().await {
        let mut resource_spans = vec![first];
        while resource_spans.len() < TOGETHER
            && let Ok(next) = batches.try_recv()
        {
            resource_spans.push(next);
        }
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let sent = timeout(PATIENCE, post(collector, body)).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason),
            Err(_) => Some(format!("it did not answer within {} seconds", PATIENCE.as_secs())),
        };
        // Once for each time that it begins: the server has more to say than this.
        if let Some(reason) = &failure
            && !fails
        {
            let address = format!("{}:{}", collector.host, collector.port);
            tracing::warn!(collector = address, reason, "traces do not reach the collector");
        }
        fails = failure.is_some();
    }
}

async fn post(collector: &Collector, body: Vec<u8>) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect((&*collector.host, collector.port))
        .await
        .map_err(|error| text(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| text(&error))?;
    let connection = tokio::task::spawn_local(connection);
    let host = if collector.host.contains(':') {
        format!("[{}]", collector.host)
    } else {
        collector.host.clone()
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(&collector.path)
        .header(HOST, format!("{host}:{}", collector.port))
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| text(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
    let status = answer.status();
    // Read, so that the connection ends well; its body is not used.
    let _ = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    drop(sender);
    connection.abort();
    if status.is_success() { Ok(()) } else { Err(format!("it answers {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_named_by_address() {
        let collector = |host: &str, port, path: &str| {
            Ok(Collector { host: host.into(), port, path: path.into() })
        };
        assert_eq!("http://collector:4318".parse(), collector("collector", 4318, PATH));
        assert_eq!("http://collector".parse(), collector("collector", 4318, PATH));
        assert_eq!("http://[::1]:9/x/v1/traces".parse(), collector("::1", 9, "/x/v1/traces"));
        for text in [
            "",
            "collector:4318",
            "https://collector",
            "http://",
            "http:///v1/traces",
            "http://a?b",
        ] {
            assert!(text.parse::<Collector>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_told_as_the_standard_has_them() {
        let attributes = vec![
            ("bytes".to_owned(), Value::Number(7)),
            ("way".to_owned(), Value::Text("lanes".into())),
        ];
        let span =
            Span { id: 0x0102, parent: 0, name: "copy".into(), begun: 5, ended: 4, attributes };
        let told = json(vec![spans(0xab, 9, vec![span])]);
        let span = &told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "000000000000000000000000000000ab");
        assert_eq!(
            (&span["spanId"], &span["parentSpanId"]),
            (&"0000000000000102".into(), &"".into())
        );
        assert_eq!(
            (&span["startTimeUnixNano"], &span["endTimeUnixNano"]),
            (&"5".into(), &"5".into())
        );
        assert_eq!(span["attributes"][0]["value"]["intValue"], "7");
        assert_eq!(told["resourceSpans"][0]["resource"]["attributes"][0]["key"], "service.name");
    }
}
