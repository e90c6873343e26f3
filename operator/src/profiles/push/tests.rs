use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use ckb_probe_profiles::{Frame, Profile, ProfileMode, Stack, pprof::Limits};
use ckb_probe_testkit::{Collector, window_of};

use super::*;

/// Takes requests on loopback, and answers them with these codes, one after the other.
fn server(codes: &'static [u16]) -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    server_that_says(codes, "ok")
}

/// The same, with this below each code.
fn server_that_says(
    codes: &'static [u16],
    said: &'static str,
) -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for code in codes {
            let (mut stream, _) = listener.accept().unwrap();
            let request = request(&mut stream);
            let answer = format!(
                "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{said}",
                said.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
            if tell.send(request).is_err() {
                return;
            }
        }
    });
    (url, told)
}

/// Its head, and its body.
fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse::<usize>().unwrap())
            });
            if read.len() >= end + 4 + length.unwrap() {
                return (head, read.split_off(end + 4));
            }
        }
        let count = stream.read(&mut piece).unwrap();
        assert_ne!(count, 0, "the request is cut off");
        read.extend_from_slice(&piece[..count]);
    }
}

fn spec() -> CkbProfileSpec {
    let mut profile = Profile::of(ProfileMode::Cpu);
    profile.stacks.add(&Stack {
        frames: vec![Frame::user("rocksdb_get_pinned_cf", "ckb")],
        weights: &[3, 30_000_000],
        ..Stack::default()
    });
    let mut spec = window_of("p", ProfileMode::Cpu, 7, 1_000, profile.to_pprof());
    spec.window.milliseconds = 30_001;
    spec
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Pushes so many profiles, until so many were pushed or dropped. Returns the metrics.
fn pushing(url: &str, headers: &str, offered: usize, ended: u64) -> String {
    pushing_as(Form::Pyroscope, url, headers, offered, ended)
}

fn pushing_as(form: Form, url: &str, headers: &str, offered: usize, ended: u64) -> String {
    let metrics = Metrics::new().unwrap();
    let config = PushConfig::parse(url, form, headers).unwrap();
    run(async {
        let (pusher, work) = Pusher::new(config, metrics.clone()).unwrap();
        for _ in 0..offered {
            pusher.offer("a", spec());
        }
        let over = async {
            loop {
                let text = metrics.render().unwrap();
                let counts = text
                    .lines()
                    .filter(|line| line.starts_with("ckb_probe_profiles_push"));
                let count: u64 = counts
                    .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                    .sum();
                if count >= ended {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = work => unreachable!(),
            text = over => text,
        }
    })
}

#[test]
fn a_profile_arrives_as_pyroscope_takes_it() {
    let (url, told) = server(&[200]);
    let metrics = pushing(&url, "# who we are\n\nX-Scope-OrgID: team-a\n", 1, 1);
    assert!(metrics.contains("ckb_probe_profiles_pushed_total 1"));
    let (head, body) = told.recv().unwrap();
    let mut lines = head.lines();
    assert_eq!(
        lines.next(),
        Some(
            "POST /prefix/ingest?name=ckb%2Dprobe%7Bnamespace%3Da%2Cckbprobe%3Dp%2Cprobe%3Dflames%2Cmode%3DCpu%7D\
             &from=1000&until=1031&format=pprof&spyName=ckb-probe HTTP/1.1"
        )
    );
    let head = head.to_lowercase();
    assert!(head.contains("\r\nx-scope-orgid: team-a"), "{head}");
    let (_, boundary) = head.split_once("multipart/form-data; boundary=").unwrap();
    let boundary = format!("--{}", boundary.lines().next().unwrap());
    let text = String::from_utf8_lossy(&body);
    assert!(text.starts_with(&format!("{boundary}\r\n")));
    assert!(text.ends_with(&format!("\r\n{boundary}--\r\n")));
    assert!(text.contains("name=\"sample_type_config\""));
    let start = text.find("name=\"profile\"").unwrap();
    // What is no text has another length as text: it is looked for in the bytes.
    let find = |bytes: &[u8], what: &[u8]| {
        bytes
            .windows(what.len())
            .position(|one| one == what)
            .unwrap()
    };
    let body = &body[find(&body[start..], b"\r\n\r\n") + start + 4..];
    let pprof = &body[..find(body, format!("\r\n{boundary}").as_bytes())];
    let profile = Profile::from_pprof(pprof, &Limits::PART).unwrap();
    assert_eq!(profile.stacks.total(0), 3);
}

#[test]
fn what_fails_is_tried_again_and_what_is_refused_is_dropped() {
    let (url, told) = server(&[503, 200, 400]);
    let metrics = pushing(&url, "", 2, 2);
    assert!(metrics.contains("ckb_probe_profiles_pushed_total 1"));
    assert!(metrics.contains("ckb_probe_profiles_push_dropped_total{reason=\"Refused\"} 1"));
    assert_eq!(told.iter().count(), 3);
}

#[test]
fn nobody_waits_for_a_server_that_is_slower_than_profiles_come() {
    let (url, _told) = server(&[200; QUEUE]);
    let metrics = pushing(&url, "", QUEUE + 3, QUEUE as u64 + 3);
    assert!(metrics.contains("ckb_probe_profiles_push_dropped_total{reason=\"QueueFull\"} 3"));
    assert!(metrics.contains(&format!("ckb_probe_profiles_pushed_total {QUEUE}")));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for url in [
        "pyroscope:4040",
        "ftp://pyroscope",
        "http://",
        "http://p/?x=1",
        "/ingest",
        "",
    ] {
        let refused = PushConfig::parse(url, Form::default(), "");
        assert!(matches!(refused, Err(PushError::Url { .. })), "{url}");
    }
    let error = PushConfig::parse(
        "http://p",
        Form::default(),
        "a: b\n\nAuthorization Bearer secret\n",
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "header 3 for pushing profiles is none: it is to be a line such as `X-Scope-OrgID: team-a`"
    );
    let config =
        PushConfig::parse("http://p", Form::default(), "Authorization: Bearer secret").unwrap();
    assert!(!format!("{config:?}").contains("secret"));
}

#[test]
fn what_a_receiver_of_otlp_did_not_take_is_dropped_as_refused() {
    // One profile, since there was no room.
    let (url, told) = server_that_says(&[200], "\n\x0b\x08\x01\x12\x07no room");
    let metrics = pushing_as(Form::OtlpAlpha, &url, "X-Scope-OrgID: team-a", 1, 1);
    assert!(metrics.contains("ckb_probe_profiles_push_dropped_total{reason=\"Refused\"} 1"));
    let (head, body) = told.recv().unwrap();
    let line = head.lines().next();
    assert_eq!(line, Some("POST /prefix/v1development/profiles HTTP/1.1"));
    let head = head.to_lowercase();
    for wanted in [
        "content-type: application/x-protobuf",
        "content-encoding: gzip",
        "x-scope-orgid: team-a",
    ] {
        assert!(head.contains(&format!("\r\n{wanted}")), "{head}");
    }
    assert_eq!(body[..2], [0x1f, 0x8b]);
}

#[test]
fn what_a_receiver_of_otlp_took_is_pushed() {
    let (url, _told) = server_that_says(&[503, 200], "");
    let metrics = pushing_as(Form::OtlpAlpha, &url, "", 1, 1);
    assert!(metrics.contains("ckb_probe_profiles_pushed_total 1"));
}

/// What a real Collector has written down of a stack: its functions with their files, the innermost first, its thread, and how much it weighs of
/// each type.
type Told = BTreeMap<(Vec<(String, String)>, String), BTreeMap<String, u64>>;

#[test]
fn a_real_collector_has_each_stack_with_each_of_its_weights() {
    let mut profile = Profile::of(ProfileMode::Cpu);
    let mut expected = Told::new();
    for number in 0..500_u64 {
        let (name, thread) = (
            format!("function_{}", number % 37),
            format!("GlobalRt-{}", number % 5),
        );
        let deepest = format!("leaf_{number}");
        let frames = vec![
            Frame::user("main", "ckb"),
            Frame::user(&name, "ckb"),
            Frame::user(&deepest, "libc.so.6"),
        ];
        let weights = [number + 1, (number + 1) * 10_101_010];
        let innermost_first = frames.iter().rev();
        let key = innermost_first.map(|frame| (frame.name.to_owned(), frame.module.to_owned()));
        let types = ["samples".to_owned(), "cpu".to_owned()];
        expected.insert(
            (key.collect(), thread.clone()),
            types.into_iter().zip(weights).collect(),
        );
        profile.stacks.add(&Stack {
            frames,
            thread: &thread,
            target: "default/ckb-0/ckb",
            weights: &weights,
            ..Stack::default()
        });
    }
    let spec = window_of("p", ProfileMode::Cpu, 7, 1_000, profile.to_pprof());
    let collector = Collector::start_with_profiles();
    let metrics = Metrics::new().unwrap();
    let config = PushConfig::parse(&collector.http(), Form::OtlpAlpha, "").unwrap();
    let written = run(async {
        let (pusher, work) = Pusher::new(config, metrics.clone()).unwrap();
        pusher.offer("a", spec);
        let written = tokio::task::spawn_blocking(move || collector.wait_for_profiles());
        tokio::select! {
            () = work => unreachable!(),
            written = written => written.unwrap(),
        }
    });
    let told: Told = written
        .into_iter()
        .map(|one| {
            assert_eq!(one.resource["ckb_probe.mode"], "Cpu");
            assert_eq!(one.resource["k8s.namespace.name"], "a");
            let thread = one.attributes["thread.name"].as_str().unwrap().to_owned();
            ((one.frames, thread), one.values)
        })
        .collect();
    assert_eq!(told.len(), 500);
    assert_eq!(told, expected);
}
