//! The model's name in an answer, where the provider was sent another name than the client's.

use bytes::Bytes;

use super::{Pipeline, StreamOptions, cut_at, run_pipeline};
use crate::relay::{AnswerFilter, Format};

const ASKED: &str = r#""up/\u0061 \"b\"""#;

const STREAMS: [(Format, &str); 3] = [
    (
        Format::Chat,
        "data: {\"id\":\"1\",\"model\":\"sent\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\"model\\\":\\\"sent\\\"\"}}]}\n\n\
         data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"model\" : \"sent\" }\n\n\
         data: {\"model\":null,\"choices\":[]}\n\ndata: {\"model\":\"\",\"choices\":[]}\n\ndata: [DONE]\n\n",
    ),
    (
        Format::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"model\":\"sent\",\"content\":[],\"usage\":{\"input_tokens\":1}}}\n\n\
         event: ping\ndata: {\"type\":\"ping\"}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"model\"}}\n\n\
         event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        Format::Responses,
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"model\":\"sent\",\"output\":[]}}\n\n\
         event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1,\"response\":{\"id\":\"r\",\"model\":\"sent\",\"status\":\"in_progress\"}}\n\n\
         event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"sequence_number\":2,\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"model\":\"other\",\"summary\":[]}}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"id\":\"r\",\"status\":\"completed\",\"model\":\"sent\",\"output\":[{\"type\":\"reasoning\",\"id\":\"rs\",\"model\":\"other\",\"summary\":[]}]}}\n\n",
    ),
];

fn pipeline(format: Format, asked_model: Option<&'static str>) -> Pipeline {
    let options = StreamOptions {
        format,
        asked_model: asked_model.map(Bytes::from),
        ..StreamOptions::default()
    };
    Pipeline::new(options, None)
}

#[test]
fn the_model_has_the_clients_name_however_the_stream_is_cut() {
    for (format, stream) in STREAMS {
        let expected = stream
            .replace("\"model\":\"sent\"", &format!("\"model\":{ASKED}"))
            .replace("\"model\" : \"sent\"", &format!("\"model\" : {ASKED}"));
        assert_ne!(expected, stream);
        for at in 0..=stream.len() {
            let cut = run_pipeline(pipeline(format, Some(ASKED)), &[stream], |bytes| {
                let (left, right) = bytes.split_at(at);
                vec![left, right]
            });
            assert_eq!(cut.bytes, expected, "{format:?} cut at {at}");
        }
        for size in [1, 2, 7] {
            let asked = pipeline(format, Some(ASKED));
            let cut = run_pipeline(asked, &[stream], |bytes| cut_at(bytes, size));
            assert_eq!(cut.bytes, expected, "{format:?} in pieces of {size}");
        }
        let unchanged = pipeline(format, None);
        let unchanged = run_pipeline(unchanged, &[stream], |bytes| cut_at(bytes, 5));
        assert_eq!(unchanged.bytes, stream);
        let same = pipeline(format, Some("\"sent\""));
        let same = run_pipeline(same, &[stream], |bytes| cut_at(bytes, 5));
        assert_eq!(same.bytes, stream);
        assert_eq!(same.summary, unchanged.summary, "{format:?}");
    }
}

/// The tool rounds of one response name one model.
#[test]
fn a_round_of_the_proxys_tools_has_the_clients_name_too() {
    let call = "data: {\"id\":\"1\",\"model\":\"sent\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"add_reminder\",\"arguments\":\"{}\"}}]}}]}\n\n\
                data: {\"id\":\"1\",\"model\":\"sent\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let text = "data: {\"id\":\"1\",\"model\":\"sent\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let options = StreamOptions {
        filter: AnswerFilter {
            tools: &["add_reminder"],
            package: false,
        },
        asked_model: Some(Bytes::from(ASKED)),
        ..StreamOptions::default()
    };
    let relayed = run_pipeline(Pipeline::new(options, None), &[call, text], |it| vec![it]);
    assert!(relayed.bytes.contains("\"content\":\"a\""));
    assert!(relayed.bytes.contains(ASKED));
    assert!(!relayed.bytes.contains("\"sent\""), "{}", relayed.bytes);
}
