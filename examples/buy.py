import http.client
import json
import random
import re
import time
import urllib.error
import urllib.request

NOTHING_HAPPENED = {'busy', 'too-many-requests', 'too-early'}


class Refused(Exception):
    """
    Its arguments: the problem's slug, whether an earlier try, without an answer, may have placed an order, and the problem itself, which has
    what the API lists for the slug, such as `remaining`, `left` or `reason`.
    """


def send(request):
    """Returns status, headers and body, which is empty unless it is a JSON object. No answer raises OSError or HTTPException."""
    try:
        answer = urllib.request.urlopen(request, timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read()
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return answer.status, answer.headers, body if isinstance(body, dict) else {}


def buy(service, sale_id, order, within_s, headers={}):
    """
    Returns the order. Raises Refused, or TimeoutError, whose argument says whether an order may exist, and whose cause is why there was
    no answer. A URL, a header or an order that cannot be sent raises ValueError, TypeError or InvalidURL.
    """
    if not re.match('https?://', service):
        raise ValueError(f'no URL of HTTP: {service}')
    request = urllib.request.Request(
        f'{service}/sales/{sale_id}/orders', json.dumps(order).encode(), {'Content-Type': 'application/json', **headers}
    )
    may_exist = False
    until = time.monotonic() + within_s
    while True:
        status, after, body, last = 0, '', {}, None
        try:
            status, answered, body = send(request)
            after = answered['Retry-After'] or ''
        except http.client.InvalidURL:
            raise
        except (OSError, http.client.HTTPException) as error:
            last = error  # no answer
        if status < 300 and 'orderId' in body:
            return body
        found = re.match('/problems/(.+)', str(body.get('type')))
        problem = found and found[1]  # None: there was no answer, or something in between answered
        if problem not in NOTHING_HAPPENED:
            if problem and status < 500:
                raise Refused(problem, may_exist and status in (401, 403), body)
            may_exist = True
        wait = int(after) if after.isdigit() else 4  # a proxy may send a date
        wait += random.random()
        if time.monotonic() + wait > until:
            raise TimeoutError(may_exist) from last
        time.sleep(wait)
