"""Column names of tables in English and Chinese, and the mapping of roles to columns.

Tasks list the English names of each role. CHINESE_TO_ENGLISH translates Chinese names, so every task reads both. Users
pass a column name or a column number, counted from 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command, nearest

CHINESE_TO_ENGLISH: dict[str, str] = {  # Chinese name, simplified or traditional → English name
    **dict.fromkeys(("文本", "文字", "微博", "推文"), "text"),
    **dict.fromkeys(("内容", "內容", "描述", "文本内容", "评论内容", "新闻内容"), "content"),
    **dict.fromkeys(("评论", "評論", "评价", "評價", "点评", "影评"), "review"),
    **dict.fromkeys(("留言", "弹幕"), "comment"),
    **dict.fromkeys(("句子", "语句", "語句"), "sentence"),
    **dict.fromkeys(("标题", "標題", "题目名称"), "title"),
    **dict.fromkeys(("正文", "全文"), "body"),
    **dict.fromkeys(("文章", "新闻", "新聞"), "article"),
    **dict.fromkeys(("文档", "文檔"), "document"),
    **dict.fromkeys(("消息", "短信", "简讯"), "message"),
    **dict.fromkeys(("文本1", "文本一"), "text1"),
    **dict.fromkeys(("文本2", "文本二"), "text2"),
    **dict.fromkeys(("句子1", "句子一", "句1"), "sentence1"),
    **dict.fromkeys(("句子2", "句子二", "句2"), "sentence2"),
    **dict.fromkeys(("句子a",), "sentence_a"),
    **dict.fromkeys(("句子b",), "sentence_b"),
    **dict.fromkeys(("问题1", "問題1", "问题一"), "question1"),
    **dict.fromkeys(("问题2", "問題2", "问题二"), "question2"),
    **dict.fromkeys(("前提",), "premise"),
    **dict.fromkeys(("假设", "假設"), "hypothesis"),
    **dict.fromkeys(("标签", "標籤", "标注", "標註"), "label"),
    **dict.fromkeys(("类别", "類別", "分类", "分類", "类型", "類型", "类目"), "category"),
    **dict.fromkeys(("情感", "情绪", "情緒", "情感倾向", "情感极性"), "sentiment"),
    **dict.fromkeys(("意图", "意圖"), "intent"),
    **dict.fromkeys(("主题", "主題", "话题", "話題"), "topic"),
    **dict.fromkeys(("分数", "分數", "得分", "评分", "評分", "打分"), "score"),
    **dict.fromkeys(("相似度", "相似性"), "similarity"),
    **dict.fromkeys(("问题", "問題", "题目", "題目", "提问"), "question"),
    **dict.fromkeys(("题干", "題幹"), "stem"),
    **dict.fromkeys(("上下文", "语境", "語境", "背景"), "context"),
    **dict.fromkeys(("答案", "正确答案", "正確答案", "标准答案", "参考答案", "回答"), "answer"),
    **dict.fromkeys(("答案位置", "起始位置", "答案起始位置"), "answer_start"),
    **dict.fromkeys(("无法回答", "不可回答"), "is_impossible"),
    **dict.fromkeys(("选项", "選項", "备选项", "候选项", "候选答案"), "options"),
    **dict.fromkeys(("摘要", "总结", "總結", "概要"), "summary"),
    **dict.fromkeys(("回复", "回覆", "答复"), "reply"),
    **dict.fromkeys(("原文",), "source"),
    **dict.fromkeys(("输入", "輸入"), "input"),
    **dict.fromkeys(("输出", "輸出", "译文", "譯文"), "output"),
    **dict.fromkeys(("指令",), "instruction"),
    **dict.fromkeys(("对话", "對話"), "dialogue"),
    **dict.fromkeys(("目标", "目標"), "target"),
    **dict.fromkeys(("查询", "查詢", "检索词", "搜索词"), "query"),
    **dict.fromkeys(("查询id", "查询编号"), "query_id"),
    **dict.fromkeys(("段落", "篇章", "文段"), "passage"),
    **dict.fromkeys(("段落id", "段落编号"), "passage_id"),
    **dict.fromkeys(("文档id", "文档编号"), "doc_id"),
    **dict.fromkeys(("相关性", "相關性", "相关度", "相關度"), "relevance"),
    **dict.fromkeys(("锚点", "锚文本"), "anchor"),
    **dict.fromkeys(("正例", "正样本"), "positive"),
    **dict.fromkeys(("负例", "负样本"), "negative"),
    **dict.fromkeys(("词", "词语", "分词", "詞語"), "words"),
    **dict.fromkeys(("词性",), "pos_tags"),
    **dict.fromkeys(("标记", "標記"), "tags"),
    **dict.fromkeys(("实体", "實體"), "entities"),
    **dict.fromkeys(("编号", "编码", "序号", "編號"), "id"),
}
# Usual names of a text column, for tasks without their own names; the first one in a table is used.
TEXT_COLUMNS = ("text", "sentence", "document", "passage", "content", "review", "comment", "body", "article", "message")
OTHER_COLUMNS = ("class", "labels", "answers", "choices", "spans", "tokens", "positives", "negatives")
KNOWN_COLUMNS = {*CHINESE_TO_ENGLISH, *CHINESE_TO_ENGLISH.values(), *OTHER_COLUMNS}
MAX_DEPTH = 3  # nested objects are flattened up to this depth


class MissingColumn(UserError):
    """A required role has no column; `role` is its name."""

    role = ""


def normalize_name(column: str) -> str:
    """Return a column name in lower case and in English.

    >>> normalize_name("Review "), normalize_name("标签"), normalize_name("句子A")
    ('review', 'label', 'sentence_a')
    """
    name = column.strip().lower()
    return CHINESE_TO_ENGLISH.get(name, name)


def find_column(columns: Sequence[str], wanted: str) -> str | None:
    """Return the column with this name, or else with this number, counted from 1.

    >>> find_column(["id", "review"], "review"), find_column(["id", "review"], "2"), find_column(["id"], "2")
    ('review', 'review', None)
    """
    if wanted in columns:
        return wanted
    number = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0
    return columns[number - 1] if 1 <= number <= len(columns) else None


def column_error(path: str, wanted: str, columns: Sequence[str]) -> UserError:
    numbers = f", or a number from 1 to {len(columns)}" if wanted.lstrip("-").isdecimal() else ""
    return UserError(
        f"{path}: no column {wanted!r}{nearest(wanted, list(columns))}",
        expected=list_columns(columns) + numbers,
        hint="pass --column ROLE=NAME with one of these names",
    )


def map_columns(
    columns: Sequence[str],
    roles: Mapping[str, Sequence[str]],
    chosen_columns: Mapping[str, str],
    needed: Sequence[str],
    path: str,
) -> dict[str, str]:
    """Map roles to columns: the column that the user gave, or else the first one with a usual name of the role.

    >>> roles = {"text": ("text", "sentence"), "label": ("label", "class")}
    >>> map_columns(["id", "Sentence", "class"], roles, {}, ["text"], "a.csv")
    {'text': 'Sentence', 'label': 'class'}
    >>> map_columns(["编号", "句子", "标签"], roles, {}, ["text"], "a.csv")
    {'text': '句子', 'label': '标签'}
    """
    unknown = next((role for role in chosen_columns if role not in roles), None)
    if unknown is not None:
        raise UserError(f"unknown role {unknown!r}{nearest(unknown, list(roles))}", expected=", ".join(roles))
    assigned: dict[str, str] = {}
    names = {normalize_name(name): name for name in reversed(columns)}
    for role in chosen_columns:
        column = find_column(columns, chosen_columns[role])
        if column is None:
            raise column_error(path, chosen_columns[role], columns)
        assigned[role] = column
    for role, usual in roles.items():
        if role not in assigned:
            column = next(
                (names[name] for name in usual if name in names and names[name] not in assigned.values()), None
            )
            if column is not None:
                assigned[role] = column
    missing = next((role for role in needed if role not in assigned), None)
    if missing is not None:
        usual_names = ", ".join(roles[missing][:6])
        error = MissingColumn(
            f"{path}: no column for {missing!r}"
            + (f" (columns {list_columns(columns)})" if columns else ", because it is not a table"),
            expected=f"{'a column' if columns else 'a table with a column'} called {usual_names}",
            hint=f"pass --column {missing}=NAME"
            if columns
            else f"{command('unmask doctor', Path(path))} detects its task",
        )
        error.role = missing
        raise error
    return {role: assigned[role] for role in roles if role in assigned}


def list_columns(columns: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in columns[:20]) or "no columns"


def flatten_objects(rows: Sequence[dict[str, Any]]) -> None:
    """Add values inside objects as columns: {"review": {"text": …}} has the column review.text.

    >>> rows = [{"review": {"text": "so good", "stars": 5}}]
    >>> flatten_objects(rows)
    >>> list(rows[0]), rows[0]["review.stars"]
    (['review', 'review.text', 'review.stars'], 5)
    """
    for row in rows:
        for name, value in list(row.items()):
            if isinstance(value, dict):
                row.update(_leaves(value, name))


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and path.count(".") < MAX_DEPTH:
            yield from _leaves(item, f"{path}.{key}")
        elif not isinstance(item, list | dict):
            yield f"{path}.{key}", item
