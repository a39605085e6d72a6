"""What one Envoy is told when: all that it asked for, once, and nothing again because it refused."""

from inference_operator.gateway import messages
from inference_operator.gateway.door import Door
from inference_operator.gateway.resources import Resources, resources
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.streams import Conversation, Request, Response

SERVICE = Service("default", "m", "1", True, (Backend("10.0.0.1", "a"),))
NAMES = frozenset({"http:default/m@1", "grpc:default/m@1"})


def now(*services: Service, weights: dict[str, int] | None = None) -> Resources:
    return resources(services, weights or {}, Door(8080, 1 << 20))


def said(conversation: Conversation, word: Resources) -> list[Response]:
    return list(conversation.due(word))


def begun(word: Resources) -> Conversation:
    """An Envoy that has taken everything once."""
    conversation = Conversation()
    wanted = {messages.CLUSTER: frozenset[str](), messages.LISTENER: frozenset[str](), messages.ROUTES: frozenset({"models"})}
    for kind, names in {**wanted, messages.ENDPOINTS: NAMES}.items():
        conversation.hear(Request(kind, names=names))
    for response in said(conversation, word):
        names = NAMES if response.kind == messages.ENDPOINTS else wanted[response.kind]
        assert not conversation.hear(Request(response.kind, response.nonce, names))
    return conversation


def test_nothing_is_told_unasked() -> None:
    assert said(Conversation(), now(SERVICE)) == []


def test_nothing_is_told_twice() -> None:
    assert said(begun(now(SERVICE)), now(SERVICE)) == []


def test_an_envoy_hears_that_there_is_no_service_yet() -> None:
    """It would not listen before it heard of its clusters."""
    conversation = Conversation()
    conversation.hear(Request(messages.CLUSTER))

    (response,) = said(conversation, now())

    assert [resource.name for resource in response.resources] == ["self"]


def test_only_the_endpoints_that_changed_are_told() -> None:
    other = Service("default", "other", "1", True, ())
    before, after = now(SERVICE, other), now(Service("default", "m", "1", True, ()), other)

    (response,) = said(begun(before), after)

    assert response.kind == messages.ENDPOINTS
    assert {one.name for one in response.resources} == NAMES


def test_clusters_come_before_the_routes_to_them() -> None:
    told = [response.kind for response in said(begun(now()), now(SERVICE))]

    assert told.index(messages.CLUSTER) < told.index(messages.ROUTES)


def test_a_cluster_that_is_gone_is_told_by_a_list_without_it() -> None:
    responses = {response.kind: response for response in said(begun(now(SERVICE)), now())}

    assert [r.name for r in responses[messages.CLUSTER].resources] == ["self"]


def test_what_was_refused_is_counted_and_not_told_again_until_there_is_news() -> None:
    conversation = begun(now(SERVICE))
    news = now(SERVICE, weights={"a": 100})
    (response,) = said(conversation, news)

    assert conversation.hear(Request(response.kind, response.nonce, NAMES, refused="no"))
    assert said(conversation, news) == []
    assert len(said(conversation, now(SERVICE, weights={"a": 200}))) == 1


def test_a_word_about_an_older_response_says_nothing() -> None:
    conversation = begun(now(SERVICE))
    list(conversation.due(now(SERVICE, weights={"a": 100})))

    assert not conversation.hear(Request(messages.ENDPOINTS, "1", frozenset(), refused="late"))
    assert said(conversation, now(SERVICE, weights={"a": 100})) == []


def test_endpoints_of_a_name_that_comes_back_are_told_anew() -> None:
    word = now(SERVICE)
    conversation = Conversation()
    conversation.hear(Request(messages.ENDPOINTS, names=NAMES))
    (response,) = said(conversation, word)
    conversation.hear(Request(messages.ENDPOINTS, response.nonce, frozenset()))
    conversation.hear(Request(messages.ENDPOINTS, response.nonce, NAMES))

    assert [len(one.resources) for one in said(conversation, word)] == [2]


def test_replicas_give_equal_words_equal_versions() -> None:
    assert [r.version for r in said(_asking(), now(SERVICE))] == [r.version for r in said(_asking(), now(SERVICE))]


def _asking() -> Conversation:
    conversation = Conversation()
    conversation.hear(Request(messages.CLUSTER))
    return conversation


def test_what_was_told_is_answered_by_taking_or_refusing_it() -> None:
    conversation = begun(now(SERVICE))
    assert conversation.answered

    for refused in ("", "bad"):
        (response,) = said(conversation, now(SERVICE, weights={"a": 50 if refused else 60}))
        assert not conversation.answered
        conversation.hear(Request(response.kind, "older", NAMES))
        assert not conversation.answered
        conversation.hear(Request(response.kind, response.nonce, NAMES, refused))
        assert conversation.answered
