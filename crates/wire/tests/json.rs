//! What JSON is tolerated, what is refused, and that what kills a genuine engine is only an error here.
#![allow(clippy::unwrap_used)]

use moonrail_wire::handshake::{ConnectionReply, Notify, NotifyReply, ProbeReply};
use moonrail_wire::{JsonError, RpcMeta, json};

#[test]
fn what_aborts_a_genuine_engine_is_an_error() {
    for (body, found) in
        [("12", "a number"), ("[]", "an array"), ("true", "a boolean"), ("\"x\"", "a string")]
    {
        assert_eq!(notify(body), Err(JsonError::NotAnObject { found }), "{body}");
        assert_eq!(json::check_object(body.as_bytes()), Err(JsonError::NotAnObject { found }), "{body}");
        assert_eq!(json::shape_of(body.as_bytes()), Ok(found));
    }
    for (body, found) in [("{}", "an object"), ("[{\"a\":[1]},2]", "an array")] {
        let body = format!("{{\"name\":\"n\",\"notify_msg\":{body}}}");
        let error = JsonError::WrongType { field: "notify_msg", expected: "a string", found };
        assert_eq!(notify(&body), Err(error), "{body}");
    }
    let pairs = |body: &str| ConnectionReply::from_json(body.as_bytes());
    assert_eq!(
        pairs("{\"qp_num\":[\"x\"]}"),
        Err(JsonError::WrongType { field: "qp_num", expected: "a number", found: "a string" })
    );
    assert_eq!(
        pairs("{\"qp_num\":[7,-1]}"),
        Err(JsonError::OutOfRange { field: "qp_num", value: "-1".to_owned(), max: u32::MAX.into() })
    );
    assert_eq!(
        pairs("{\"local_nic_path\":[]}"),
        Err(JsonError::WrongType { field: "local_nic_path", expected: "a string", found: "an array" })
    );
    assert_eq!(pairs("{\"qp_num\":[1,2]}").unwrap().qp_num, [1, 2]);
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert_eq!(notify(&nested(json::MAX_DEPTH)), Ok(note("", "")));
    assert_eq!(notify(&nested(json::MAX_DEPTH + 1)), Err(JsonError::TooDeep));
    // A frame's worth of brackets, closed or not: no recursion on the way to the error.
    assert_eq!(notify(&nested(500_000)), Err(JsonError::TooDeep));
    assert_eq!(notify(&"[".repeat(1 << 20)), Err(JsonError::TooDeep));
    assert_eq!(notify(&"{\"a\":".repeat(100_000)), Err(JsonError::TooDeep));
    // Brackets in a string are text.
    let text = "[".repeat(1000);
    assert_eq!(notify(&format!("{{\"name\":\"{text}\"}}")), Ok(note(&text, "")));
}

#[test]
fn scalars_in_string_fields_become_text() {
    for (json, expected) in [
        ("1", "1"),
        ("2.5", "2.5"),
        ("-7", "-7"),
        ("18446744073709551615", "18446744073709551615"),
        ("true", "true"),
        ("false", "false"),
        ("null", ""),
        ("\"\"", ""),
        ("\"\\u0000\"", "\0"),
        ("\"a\\u0000b\"", "a\0b"),
        ("\"\\ud83c\\udf19\"", "\u{1f319}"),
        ("\"\u{1f319}\"", "\u{1f319}"),
    ] {
        let body = format!("{{\"name\":{json},\"notify_msg\":{json}}}");
        assert_eq!(notify(&body), Ok(note(expected, expected)), "{json}");
    }
}

#[test]
fn absent_fields_and_null_are_empty() {
    assert_eq!(notify("{}"), Ok(note("", "")));
    assert_eq!(notify("null\n"), Ok(note("", "")));
    assert_eq!(notify("{\"unknown\":[{\"deep\":{}}]}"), Ok(note("", "")));
    assert_eq!(ConnectionReply::from_json(b"{}"), Ok(ConnectionReply::empty_accept()));
    assert_eq!(ProbeReply::from_json(b"{}").unwrap().status, "");
}

#[test]
fn comments_are_skipped() {
    for body in [
        "// first\n{\"name\":\"a\",\"notify_msg\":\"b\"}",
        "/* first */ {\"name\" /* : */ : \"a\", // end of line\n \"notify_msg\":\"b\"} // last",
        "{\"name\":\"a\",/**/\"notify_msg\":\"b\"/***/}",
        "{\"name\":\"a\",// carriage return ends it too\r\"notify_msg\":\"b\"}",
    ] {
        assert_eq!(notify(body), Ok(note("a", "b")), "{body}");
    }
    // Inside a string it is text, behind an escaped quote too.
    let body = r#"{"name":"http://x/*y*/","notify_msg":"\"//\\"}"#;
    assert_eq!(notify(body), Ok(note("http://x/*y*/", "\"//\\")));
    for body in ["/", "{/}", "{/* open", "{\"name\":\"a\" / \"notify_msg\":\"b\"}", "// only"] {
        assert!(matches!(notify(body), Err(JsonError::Syntax { .. })), "{body}");
    }
}

#[test]
fn what_follows_the_first_value_does_not_matter() {
    for tail in ["", "\n", " x", "}", "{\"name\":\"z\"}", "\0\0", "[[[[", "\"", "/*"] {
        let body = format!("{{\"name\":\"a\",\"notify_msg\":\"b\"}}{tail}");
        assert_eq!(notify(&body), Ok(note("a", "b")), "{tail:?}");
    }
    let deep = format!("{{\"name\":\"a\"}}{}", "[".repeat(1000));
    assert_eq!(notify(&deep), Ok(note("a", "")));
}

#[test]
fn the_last_of_duplicate_keys_wins() {
    assert_eq!(notify("{\"name\":\"a\",\"name\":\"b\",\"notify_msg\":1}"), Ok(note("b", "1")));
    assert_eq!(notify("{\"name\":[],\"name\":\"b\"}"), Ok(note("b", "")));
    assert_eq!(notify("{\"name\":\"a\",\"name\":null}"), Ok(note("", "")));
}

#[test]
fn invalid_utf8_becomes_replacement_characters() {
    let body = b"{\"name\":\"a\xff\xfeb\",\"notify_msg\":\"\xf0\x9f\"}";
    assert_eq!(Notify::from_json(body), Ok(note("a\u{fffd}\u{fffd}b", "\u{fffd}")));
    // Also where a comment makes the text be copied, and in what is skipped.
    let body = b"/*\xff*/{\"\xff\":\"\xff\",\"name\":\"\xffq\"}\xff";
    assert_eq!(Notify::from_json(body), Ok(note("\u{fffd}q", "")));
    assert_eq!(Notify::from_json(b"\xef\xbb\xbf{\"name\":\"bom\"}"), Ok(note("bom", "")));
}

#[test]
fn broken_json_is_an_error() {
    for body in [
        "",
        " ",
        "{",
        "}",
        "{]",
        "{\"name\"}",
        "{\"name\":}",
        "{\"name\":\"a",
        "{\"name\":\"a\\",
        "{name:1}",
        "{'name':1}",
        "{\"name\":nul}",
        "{\"name\":\"\\ud83c\"}",
        "{\"name\":01}",
        "{\"name\":1e999}",
        "nope",
        "{\"a\":1]",
    ] {
        assert!(matches!(notify(body), Err(JsonError::Syntax { .. })), "{body:?}: {:?}", notify(body));
    }
}

#[test]
fn an_empty_notify_reply_is_a_rejection() {
    assert_eq!(NotifyReply { accepted: false }.to_json(), b"{\"name\":\"\",\"notify_msg\":\"\"}\n");
    for (body, accepted) in [
        ("{\"name\":\"\",\"notify_msg\":\"\"}", false),
        ("{}", false),
        ("null", false),
        ("{\"notify_msg\":\"success\"}", true),
        ("{\"notify_msg\":\"other\"}", true),
    ] {
        assert_eq!(NotifyReply::from_json(body.as_bytes()), Ok(NotifyReply { accepted }), "{body}");
    }
}

#[test]
fn a_rejected_connection_always_has_a_reason() {
    assert_eq!(ConnectionReply::rejection("why").reply_msg, "why");
    assert!(!ConnectionReply::rejection("").reply_msg.is_empty());
}

#[test]
fn ports_are_not_truncated() {
    let port = |text: &str| {
        RpcMeta::from_json(format!("{{\"ip_or_host_name\":\"h\",\"rpc_port\":{text}}}").as_bytes())
            .map(|meta| meta.rpc_port)
    };
    assert_eq!(port("65535"), Ok(65535));
    assert_eq!(port("16387.0"), Ok(16387));
    for text in ["65536", "70000", "-1", "1.5", "1e300"] {
        assert!(matches!(port(text), Err(JsonError::OutOfRange { field: "rpc_port", .. })), "{text}");
    }
    for text in ["\"16387\"", "true", "[]", "{}"] {
        assert!(matches!(port(text), Err(JsonError::WrongType { field: "rpc_port", .. })), "{text}");
    }
}

#[test]
fn size_is_bounded() {
    let len = json::MAX_LEN + 1;
    assert_eq!(Notify::from_json(&vec![0; len]), Err(JsonError::TooLarge { len }));
}

#[test]
fn text_is_escaped() {
    let json = note("q\"\\/", "\n\0\u{7f}é").to_json();
    assert_eq!(
        std::str::from_utf8(&json).unwrap(),
        "{\"name\":\"q\\\"\\\\/\",\"notify_msg\":\"\\n\\u0000\u{7f}é\"}\n"
    );
}

fn notify(body: &str) -> Result<Notify, JsonError> {
    Notify::from_json(body.as_bytes())
}

fn note(name: &str, message: &str) -> Notify {
    Notify { name: name.to_owned(), message: message.to_owned() }
}
