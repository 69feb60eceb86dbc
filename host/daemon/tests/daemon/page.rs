//! The page of metrics of the real daemon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::{Caller, Daemon, Dir, PATIENCE, Service, until};

/// Asks over any stream; the whole answer.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("the daemon reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn the_page_is_served_to_many_and_nothing_else_is() {
    let dir = Dir::new("page");
    let path = dir.path("run/metrics.sock");
    let config = dir.config(&format!("[metrics]\nlisten = \"unix:{}\"", path.display()));
    let service = Service::start(&dir.path("run"), "kv", 2);
    service.set_queue(100);
    let _daemon = Daemon::start(&config);
    Caller::connect(&dir).wait_for_mode("kv", "watch");
    let connect = || {
        let stream = UnixStream::connect(&path).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    };
    let page = || ask(connect(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    until("packets are shown", || {
        let page = page();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("# EOF\n"), "{page}");
        let packets = page.lines().find_map(|line| {
            line.strip_prefix("tailplane_thread_packets_total{service=\"kv\",thread=\"0\"} ")
        });
        packets.is_some_and(|packets| packets.parse::<f64>().expect("a number") > 1_000.0)
    });
    let head = ask(connect(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && head.contains("openmetrics-text"), "{head}");
    assert!(ask(connect(), "GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask(connect(), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(8_200));
    assert!(ask(connect(), &long).starts_with("HTTP/1.1 431"));
    // As many as have room say nothing: one more is answered all the same, and the oldest of them goes.
    let mut silent: Vec<UnixStream> = (0..64).map(|_| connect()).collect();
    let answered = page();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    let mut refused = String::new();
    silent[0].read_to_string(&mut refused).expect("it is told why");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    let youngest = silent.pop().expect("64 of them");
    let answered = ask(youngest, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
}

#[test]
fn the_page_is_served_over_tcp() {
    let dir = Dir::new("tcp");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("one")
        .port();
    let _daemon = Daemon::start(&dir.config(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\"")));
    Caller::connect(&dir);
    let mut stream = None;
    until("somebody listens", || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let page = ask(stream.expect("connected"), "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(page.contains("tailplane_daemon_info{version="), "{page}");
}
