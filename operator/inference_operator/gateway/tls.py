"""TLS at both ends of the door: the certificate that callers see, and whom Envoy takes for a worker.

Envoy reads the callers' key from a file that the operator only names. Workers with `serve.tls` show certificates of the operator's
own authority, which gives the names of a job's Service to that job's workers alone: the next pod at an address has no such name.
"""

from inference_operator.gateway import messages
from inference_operator.gateway.manifests import ADS, Manifest, any_of
from inference_operator.gateway.snapshot import Service
from inference_operator.workers.identity import hosts

DOOR, CALLERS, WORKERS = "door", "callers", "workers"
# The numbers of Envoy's enums.
_DNS, _TLS_1_2, _TLS_1_3 = 2, 3, 4
# What health checks are found by: they go to the port for probes, which is plain.
CHECKED: Manifest = {"health": True}


def secrets(folder: str, trust: str, callers: str = "") -> dict[str, Manifest]:
    """What Envoys are told of keys: where the door's is, and whom workers' certificates are signed by (PEM).

    `callers` is the folder with the CAs of callers' certificates; empty where these are not asked for.
    """
    files = {
        "certificate_chain": {"filename": f"{folder}/tls.crt"},
        "private_key": {"filename": f"{folder}/tls.key"},
        # A renewed Secret is mounted under another folder, and a link in this one is moved to it.
        "watched_directory": {"path": folder},
    }
    found: dict[str, Manifest] = {}
    if folder:
        found[DOOR] = {"name": DOOR, "tls_certificate": files}
    if callers:
        trusted = {"trusted_ca": {"filename": f"{callers}/ca.crt"}, "watched_directory": {"path": callers}}
        found[CALLERS] = {"name": CALLERS, "validation_context": trusted}
    if trust:
        found[WORKERS] = {"name": WORKERS, "validation_context": {"trusted_ca": {"inline_string": trust}}}
    return found


def of_callers(*, known: bool = False) -> Manifest:
    """The listener's end. Where callers are `known` by certificates, one that is shown has to be good; who shows none gets in, too.

    Nobody resumes a session then: Envoy doesn't look at a certificate again.
    """
    asked = {"validation_context_sds_secret_config": {"name": CALLERS, "sds_config": ADS}} if known else {}
    context: Manifest = {
        "disable_stateless_session_resumption": known,
        "disable_stateful_session_resumption": known,
        "common_tls_context": {
            **asked,
            "tls_params": {"tls_minimum_protocol_version": _TLS_1_2},
            "tls_certificate_sds_secret_configs": [{"name": DOOR, "sds_config": ADS}],
            "alpn_protocols": ["h2", "http/1.1"],
        },
    }
    return {"name": "tls", "typed_config": any_of(messages.DOWNSTREAM_TLS, context)}


def of_workers(service: Service) -> Manifest:
    """The fields of a cluster whose workers speak TLS: verified by the name that the authority gives to the jobs' workers alone."""
    known = [hosts(job)[1] for job in service.jobs]
    named = [{"san_type": _DNS, "matcher": {"exact": name}} for name in known]
    context: Manifest = {
        "sni": known[0],
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": _TLS_1_3, "tls_maximum_protocol_version": _TLS_1_3},
            "combined_validation_context": {
                "default_validation_context": {"match_typed_subject_alt_names": named},
                "validation_context_sds_secret_config": {"name": WORKERS, "sds_config": ADS},
            },
        },
    }
    plain = {"name": "plain", "typed_config": any_of(messages.PLAIN, {})}
    return {
        "transport_socket": {"name": "tls", "typed_config": any_of(messages.UPSTREAM_TLS, context)},
        "transport_socket_matches": [{"name": "checks", "match": CHECKED, "transport_socket": plain}],
    }
