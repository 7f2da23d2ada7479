//! Bodies pass byte for byte in both directions, and are bounded (reports 76 to 81; RFC 9110 7.7, 15.5.14).

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests::Outcome;

use crate::support::engine::ScriptedEngine;
use crate::support::gateway::{over, strict};
use crate::support::message::{End, find};
use crate::support::script::{answer, chunk, send};
use crate::support::wire::{Wire, post};

const MEGABYTE: usize = 1_000_000;

fn head(framing: &str) -> Vec<u8> {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{framing}\r\n").into_bytes()
}

fn with_length(body: &[u8]) -> Vec<u8> {
    [&head(&format!("content-length: {}\r\n", body.len())), body].concat()
}

/// Bytes that a JSON string may hold in some engine's eyes; no valid UTF-8.
fn noise(rng: &mut StdRng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.random_range(0x20..=0xffu8)).map(|byte| if matches!(byte, b'"' | b'\\') { b'.' } else { byte }).collect()
}

/// Report 81: what a re-encoding would change.
#[tokio::test]
async fn report_81_request_bodies_pass_byte_for_byte() -> Outcome<()> {
    let mut rng = StdRng::seed_from_u64(81);
    let (gateway, engine) = strict(|received| send(answer(200, "", received.body.len().to_string()))).await?;
    let noise = noise(&mut rng, 3000);
    let bodies: Vec<Vec<u8>> = vec![
        b" {\r\n\t\"messages\" : [ ] ,\"model\":\"m\",\"z\":1.0E+2,\"a\":1,\"n\":100000000000000000000.10 } \n".to_vec(),
        br#"{"model":"other","model":"m","a":1,"a":2}"#.to_vec(),
        br#"{"\u006dodel":"m","\u006D\u006fdel2":"x"}"#.to_vec(),
        br#"{"model":"\u006d","messages":[{"content":"\ud83d\ude00 \/ \u00e9"}]}"#.to_vec(),
        br#"{"messages":[{"model":"inner"}],"x":{"model":"deep"},"model":"m"}"#.to_vec(),
        br#"{"model":"m","messages":[{"content":"{\"model\":\"quoted\"}"}]}"#.to_vec(),
        [br#"{"model":"m","messages":[{"content":""#.as_slice(), &noise, br#""}]}"#].concat(),
        [br#"{"x":""#.as_slice(), &noise, br#"","model":"m"}"#].concat(),
    ];
    for body in bodies {
        let answer = Wire::ask(&gateway, with_length(&body)).await?;
        assert_eq!(answer.status(), 200, "{}: {}", String::from_utf8_lossy(&body), answer.text());
        assert!(engine.last()?.body == body, "{}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

/// The last of two keys wins, as in the engines' parser; keys inside other values count for nothing.
#[tokio::test]
async fn the_model_is_the_one_that_engines_read() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    let refused = [
        (r#"{"model":"m","model":"other"}"#, 404),
        (r#"{"messages":[{"model":"m"}]}"#, 400),
        (r#"{"x":"\"model\":\"m\""}"#, 400),
        (r#"{"model":7}"#, 400),
        (r#"["m"]"#, 400),
        (r#"{"model":"m""#, 400),
        ("", 400),
    ];
    for (body, status) in refused {
        let answer = Wire::ask(&gateway, post("", body)).await?;
        assert_eq!(answer.status(), status, "{body}: {}", answer.text());
        answer.code()?;
    }
    assert_eq!(engine.received().len(), 0);
    Ok(())
}

#[tokio::test]
async fn answer_bodies_pass_byte_for_byte() -> Outcome<()> {
    let mut rng = StdRng::seed_from_u64(82);
    // Longer than what is read whole before it goes on, and shorter.
    for length in [0, 1, 70_000, 9 * MEGABYTE] {
        let body: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        for chunked in [false, true] {
            let pieces: Vec<u8> = body.chunks(60_000).flat_map(chunk).collect();
            let bytes = match chunked {
                false => answer(200, "", &body),
                true => [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", pieces.as_slice(), b"0\r\n\r\n"].concat(),
            };
            let (gateway, _engine) = strict(move |_| send(&bytes)).await?;
            let seen = Wire::ask(&gateway, post("", r#"{"model":"m"}"#)).await?;
            assert_eq!((seen.status(), seen.end), (200, End::Whole));
            assert!(seen.body == body, "{length} bytes, chunked: {chunked}: {} came", seen.body.len());
        }
    }
    Ok(())
}

/// Reports 76 to 78: large images as base64, with a length and in chunks.
#[tokio::test]
async fn report_80_large_bodies_pass() -> Outcome<()> {
    let (gateway, engine) = strict(|_| send(answer(200, "", "{}"))).await?;
    for megabytes in [1, 9, 101] {
        let image = "QUJDREVG".repeat(megabytes * MEGABYTE / 8);
        let body = format!(r#"{{"messages":[{{"content":"{image}"}}],"model":"m"}}"#).into_bytes();
        for chunked in [false, true] {
            let mut wire = Wire::open(&gateway).await?;
            if chunked {
                wire.send(head("transfer-encoding: chunked\r\n")).await?;
                for piece in body.chunks(1 << 20) {
                    wire.send(chunk(piece)).await?;
                }
                wire.send("0\r\n\r\n").await?;
            } else {
                wire.send(with_length(&body)).await?;
            }
            assert_eq!(wire.answer().await?.status(), 200, "{megabytes} MB, chunked: {chunked}");
            assert!(engine.take_last()?.body == body, "{megabytes} MB, chunked: {chunked}");
        }
    }
    Ok(())
}

/// Reports 79 and 80: 413 in the OpenAI shape, while most of the body has not been sent.
#[tokio::test]
async fn p16_report_80_a_body_over_the_limit_is_413_early() -> Outcome<()> {
    let engine = ScriptedEngine::start(|_| send(answer(200, "", "{}")))?;
    let gateway = over(&[engine.leader("m")], "limits: {body_bytes: 1MiB}\n").await?;
    let declared = head("content-length: 104857600\r\n");
    let chunks = [head("transfer-encoding: chunked\r\n"), chunk(vec![b' '; 900_000]), chunk(vec![b' '; 900_000])].concat();
    let fits = [head("transfer-encoding: chunked\r\n"), chunk(vec![b' '; 1_000_000])].concat();
    for request in [declared, chunks] {
        let mut wire = Wire::open(&gateway).await?;
        wire.send(request).await?;
        let answer = wire.answer().await?;
        assert_eq!((answer.status(), answer.code()?.as_str()), (413, "body_too_large"));
        assert!(find(&answer.body, b"1048576").is_some(), "it names the limit: {}", answer.text());
        assert_eq!(answer.head.get("connection"), Some("close"));
    }
    let mut wire = Wire::open(&gateway).await?;
    wire.send([fits, chunk(r#"{"model":"m"}"#), b"0\r\n\r\n".to_vec()].concat()).await?;
    assert_eq!(wire.answer().await?.status(), 200);
    assert_eq!(engine.received().len(), 1);
    Ok(())
}
